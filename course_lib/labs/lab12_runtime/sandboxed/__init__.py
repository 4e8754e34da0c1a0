"""The program of lab 12 that runs learner code on the stand-in."""
