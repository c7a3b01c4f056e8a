"""Items that a client drew or was handed, beside those that it rated."""
