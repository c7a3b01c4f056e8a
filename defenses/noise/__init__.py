"""Noise on uploads and in objectives, and the stretching that goes with it."""
