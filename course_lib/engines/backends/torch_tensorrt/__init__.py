"""Torch-TensorRT: what each version takes and ignores, and engines made from modules."""
