"""The CUDA driver through ctypes: devices, streams, graphs, and two clocks that check each other."""
