"""Turns models that other systems have trained into our run directories."""
