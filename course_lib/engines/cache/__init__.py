"""The cache of built plans."""
