"""The machine, outside the paper: files, memory, cores, optional packages."""
