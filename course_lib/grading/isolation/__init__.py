"""Processes that may be hostile: the sandbox, its limits, and the kernel that runs a learner's notebook."""
