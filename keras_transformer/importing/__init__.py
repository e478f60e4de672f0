"""Models that other systems have trained, as run directories of ours."""
