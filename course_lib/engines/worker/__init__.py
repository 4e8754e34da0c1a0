"""Processes that hold an engine or a compiler, and the protocol between them and their parent."""
