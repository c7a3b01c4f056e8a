"""The exchange format: manifest, what one adversary sees, reader and writer."""
