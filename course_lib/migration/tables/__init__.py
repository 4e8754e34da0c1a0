"""TensorRT's API by version, read from NVIDIA's bindings."""
