"""The run directory: configuration, checkpoints, averages, history."""
