"""The victims, one file for each paper, and the interface that they keep."""
