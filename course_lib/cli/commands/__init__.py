"""The commands of `course`, with one module for each group. A command is a few lines around the library."""
