"""Reference networks, each one small file and a recipe."""
