"""Tests that ask several labs the same: missing files, twenty gradings, bare interpreters, words of errors."""
