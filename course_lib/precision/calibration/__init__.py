"""From observed tensors to ranges: histograms, calibrators, and the cache file of TensorRT."""
