"""TensorRT and TensorRT for RTX: building, loading and running engines."""
