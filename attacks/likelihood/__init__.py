"""Posteriors over ratings from noisy uploads."""
