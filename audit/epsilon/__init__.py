"""Empirical lower bounds of epsilon beside what is claimed."""
