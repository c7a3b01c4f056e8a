"""Is an answer on the grid by more than chance: levels, the grid, what clients and levels tell against it."""
