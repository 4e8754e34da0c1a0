"""Tests that ask several labs the same: hostile answers, missing files, twenty gradings, bare interpreters, words of errors."""
