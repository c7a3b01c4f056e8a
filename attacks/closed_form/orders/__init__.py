"""Steps after every rating in an order that nobody sees."""
