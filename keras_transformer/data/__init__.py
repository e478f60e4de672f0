"""The data wing: text, tokens and batches. It knows nothing of the model."""
