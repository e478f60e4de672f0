"""A trained model for others to run: SavedModel, serving kit, CTranslate2."""
