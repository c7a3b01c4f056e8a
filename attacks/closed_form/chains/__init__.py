"""Several steps, each row a sum over them."""
