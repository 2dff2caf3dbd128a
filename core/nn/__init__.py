"""Modules, parameters and functional forms, named as PyTorch names them."""
