"""The judge of lab 11: what is asked, and what the answers mean."""
