"""ONNX Runtime: sessions, engines, and the layers that it reports."""
