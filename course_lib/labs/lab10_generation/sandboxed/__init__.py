"""The process of lab 10 in which a decoder runs."""
