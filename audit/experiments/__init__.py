"""Grids of runs: victims, defenses, attacks and metrics."""
