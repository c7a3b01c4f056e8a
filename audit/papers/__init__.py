"""What reproduces the tables and figures of the five papers: ``factorleak papers``."""
