"""What peers read of each other where no server stands between them."""
