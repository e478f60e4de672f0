"""Finding the next tokens: search, sampling, steps (section 6.1)."""
