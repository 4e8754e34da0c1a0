"""Lab 13, generate: a decoder with a cache of keys and values in place of one that computes every byte again."""
