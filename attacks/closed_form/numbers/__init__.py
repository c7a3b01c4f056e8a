"""Numbers of which sent ones are whole multiples: lattices and short vectors."""
