"""Errors that went through a link: which one, and which ratings are behind it."""
