"""Section 5: one exact step, and all that happens around it."""
