"""What the command line and the Python face ask for: typed requests, and what answers them."""
