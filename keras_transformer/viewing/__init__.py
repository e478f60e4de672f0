"""Attention and beam search to look at, as a page, as SVG or as arrays."""
