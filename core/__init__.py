"""Tensors, autograd, nn, optimizers and data: NumPy or CuPy underneath."""
