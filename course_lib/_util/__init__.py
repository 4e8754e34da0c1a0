"""What every package may use: files and folders, lazy imports, progress bars, and facts about the processor."""
