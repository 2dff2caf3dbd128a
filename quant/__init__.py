"""The arithmetic of quantization: schemes, observers, fake-quant training."""
