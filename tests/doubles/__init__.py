"""Stand-ins for a GPU, for pycuda and for TensorRT, for machines that have none. They fail where the real ones fail."""
