"""A server and a page over an exported SavedModel; needs the extra `serve`."""
