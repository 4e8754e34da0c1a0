"""Lab 07, dynamic shapes."""
