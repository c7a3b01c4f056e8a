"""How well a recommender predicts and ranks."""
