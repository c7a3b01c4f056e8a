"""Rows of one factor: rank one, and the length by which all ratings are on the grid."""
