"""Section 5: one exact step, and everything around it."""
