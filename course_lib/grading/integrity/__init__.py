"""Signatures of verdicts, and similarity between submissions."""
