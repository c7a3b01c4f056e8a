"""Steps of Adam and its relatives."""
