"""Float kernels on NHWC arrays: C where NumPy is slow, and a twin in array code beside each.

The C is used for contiguous float32 NumPy arrays when a compiler is there; every other array
(float64, CuPy, no compiler) takes the twin, which is also what the tests hold the C against.
"""
