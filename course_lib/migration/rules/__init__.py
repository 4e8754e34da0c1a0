"""What replaces each old name, flag and keyword."""
