"""What a program does with TensorRT, read from its source."""
