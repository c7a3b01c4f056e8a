"""Positives and the zeros beside them."""
