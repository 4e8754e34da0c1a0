"""The program of lab 09 that runs learner code on the stand-in."""
