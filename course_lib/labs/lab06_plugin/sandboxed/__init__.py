"""What runs in the same process or sandbox as learner code, and nothing else."""
