"""Code that runs in the same process or sandbox as learner code."""
