"""The replacement of each old name, flag and keyword."""
