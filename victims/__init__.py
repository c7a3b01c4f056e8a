"""Ratings, victim protocols and the transcripts of what each party sees (floor 1)."""
