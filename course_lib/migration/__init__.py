"""TensorRT's API by version, and what changed between versions."""
