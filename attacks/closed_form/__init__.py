"""Attacks by linear algebra and search on the rating grid."""
