"""What the `course` command can do, one module a group of commands. A command is a few lines over the library."""
