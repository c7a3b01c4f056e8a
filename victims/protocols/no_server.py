"""What victims have in common whose clients send to each other: answers to what is asked of servers."""

from __future__ import annotations


class NoServer:
    """Properties of a victim without a server; victims inherit them, and override what is otherwise."""

    @property
    def blind_server(self) -> bool:
        """There is no server."""
        return False

    @property
    def stepwise(self) -> bool:
        """Receivers step once a round."""
        return False

    @property
    def has_item_server(self) -> bool:
        """There is none."""
        return False

    @property
    def folds_in(self) -> bool:
        """It knows ratings alone."""
        return False
