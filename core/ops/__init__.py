"""One file an operator family: forward and gradient together."""
