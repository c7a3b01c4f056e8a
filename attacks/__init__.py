"""Attacks: pure functions of one adversary's view (floor 2)."""
