"""Errors, files, limits and random streams that every package shares."""
