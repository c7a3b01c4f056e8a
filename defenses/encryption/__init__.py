"""Additively homomorphic encryption of uploads."""
