"""RoPE on a machine without a GPU: reference, kernel through the host's compiler, plugins against TensorRT's real bindings."""
