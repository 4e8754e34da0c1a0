"""The CUDA driver by ctypes: devices, streams, graphs, and two clocks that check each other."""
