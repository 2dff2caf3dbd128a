"""The C runtime: headers and sources that a compiled model needs."""
