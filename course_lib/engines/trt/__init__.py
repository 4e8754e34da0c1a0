"""TensorRT 8.6, 10 and 11 and TensorRT for RTX: building, loading, running. One implementation over the imported module."""
