"""Rows as a linear form of ratings in a few unknown numbers, and noise of unknown size."""
