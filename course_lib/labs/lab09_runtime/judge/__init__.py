"""The judge of lab 09: it replays a trace on its own device, and computes outputs, hazards, leaks and times itself."""
