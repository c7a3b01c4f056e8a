"""Which rows a client trains on and sends."""
