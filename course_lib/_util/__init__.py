"""Helpers for every package: files and folders, lazy imports, progress bars, and facts about the processor."""
