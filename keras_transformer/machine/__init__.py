"""What the paper does not know: files, memory, cores, optional packages."""
