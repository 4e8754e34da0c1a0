"""Torch-TensorRT: the keywords that each version reads or ignores, and engines made from modules."""
