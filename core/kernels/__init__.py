"""Array-level kernels in C, each with a NumPy twin."""
