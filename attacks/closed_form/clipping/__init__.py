"""Errors, rows and entries that were clipped to a bound."""
