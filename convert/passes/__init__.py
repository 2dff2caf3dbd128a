"""Graph rewrites, one a file, ONNX in and ONNX out."""
