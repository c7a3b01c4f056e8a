"""What ``factorleak`` has below it."""
