"""Which client rule explains what was uploaded."""
