"""Steps from factors that are all equal."""
