"""Recorders beside the programs of known frameworks; each builds on ``victims.transcript.recorder``."""
