"""The reference submission."""
