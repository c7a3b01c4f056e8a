"""Campaigns: what several commands measure, as one grid that a file describes."""
