"""The `course` command: `app` has the commands, `output` prints what they found."""
