"""What a run directory holds: configuration, checkpoints, averages, history."""
