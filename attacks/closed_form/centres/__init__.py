"""Ratings less a number that nobody told, and their mirror images."""
