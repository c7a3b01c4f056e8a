"""Entries that were not sent."""
