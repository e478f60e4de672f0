"""Attention and beam search to look at, as a page, a plot or arrays."""
