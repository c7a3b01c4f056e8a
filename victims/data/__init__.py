"""Ratings: the object, loaders of published files, and synthetic ones."""
