"""What is done to ratings, uploads and aggregates on their way (floor 2)."""
