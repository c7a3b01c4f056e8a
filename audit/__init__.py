"""Threat models, scoring, the campaign grid and the command line (floor 4)."""
