"""Graph recording and the backward engine."""
