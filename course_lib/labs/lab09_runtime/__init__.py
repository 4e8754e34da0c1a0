"""Lab 09, the runtime by hand: a serving loop in the raw calls of TensorRT and CUDA, judged by its trace."""
