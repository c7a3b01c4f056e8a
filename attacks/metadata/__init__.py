"""Attacks that read no gradient: lists of items, and guesses."""
