"""The judge of lab 15: what is asked, and what the answers mean."""
