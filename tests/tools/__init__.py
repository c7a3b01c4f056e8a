"""Long trials of the whole program, run on demand: each prints what it counted."""
