"""Biases of clients and of items."""
