"""The clients' step of each protocol, restated from its paper."""
