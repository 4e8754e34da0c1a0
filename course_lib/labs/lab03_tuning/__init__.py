"""Lab 03, tune and keep: measure tactics on a noisy device, choose within limits, and keep what was measured."""
