"""The use of TensorRT in a program, read from its source."""
