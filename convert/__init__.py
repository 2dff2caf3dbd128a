"""From a trained or imported network to a quantized ONNX file and C."""
