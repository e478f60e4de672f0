"""Attention and beam search to look at: a page of its own, SVG, arrays."""
