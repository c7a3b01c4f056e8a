"""How right a reconstruction is, beside its baseline and its ceiling."""
