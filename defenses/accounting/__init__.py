"""What noise proves: privacy accounts and budgets."""
