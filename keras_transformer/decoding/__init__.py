"""How the next tokens are found: search, sampling, steps (section 6.1)."""
