"""Ratings, start and constants fitted to a client's uploads under any differentiable rule."""
