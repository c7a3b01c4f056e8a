"""Fits of a client's factor over several rounds."""
