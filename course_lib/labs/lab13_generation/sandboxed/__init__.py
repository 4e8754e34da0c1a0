"""The process of lab 13 in which a decoder runs."""
