"""What the judge computes; never in a process with learner code."""
