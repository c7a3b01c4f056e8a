"""Record a Flower app: what its server sends to the nodes, and what they answer.

    with factorleak.Recorder("run", rating_levels=[1, 2, 3, 4, 5]) as recorder:
        grid = factorleak.RecordedGrid(grid, recorder, factors="item_factors")
        strategy.start(grid, initial_arrays)

Everything that a server learns passes its grid, whatever the strategy, or none, does with it. Nothing of
Flower is imported here: a grid, its messages and their records are used by their public names.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from victims.common.errors import InputError
from victims.transcript.recorder import Recorder

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict
    from flwr.serverapp import Grid

SERVER_ROUND = "server-round"  # under which Flower's strategies tell the round


class _Sent(NamedTuple):
    """A message that is to be answered: its round, and its factors where the round's are others."""

    round_: int
    factors: np.ndarray | None
    biases: np.ndarray | None


class RecordedGrid:
    """A Flower grid that records what passes it; use it in the place of the grid that ``ServerApp`` gives.

    A round is what the server sends before the next answer comes in. It has the number that the messages
    tell as ``server-round`` where that is a new one, else the next one. Answers that tell of an error are
    passed on and not recorded.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
    recorder : Recorder
        Inside its context.
    factors : str or int
        Name of the array, or its position in an unnamed list, that brings the item factors to the nodes:
        a row for each item.
    rows : str or int, optional
        The same for the array that comes back; default: the same name.
    items : str or int, optional
        An array that comes back with the items of the rows; without it there is a row for every item.
    biases : str or int, optional
        The array that goes to the nodes with what the program adds to the prediction of each item.
    client : str, optional
        Name of an entry of the metrics or of the configuration in an answer that says who sends it
        (``partition-id``); default: the id of the node, which is all that Flower's server sees by itself.
        Whoever gives the recorder the truth must use the same.
    message_type : str
        Of the messages to record, those that are more closely named (``train.warm_up``) included.

    Raises
    ------
    InputError
        By the methods, if a message does not hold what is named here or the recorder refuses it.

    References
    ----------
    D. J. Beutel et al., Flower: A Friendly Federated Learning Research Framework, arXiv:2007.14390.
    """

    def __init__(
        self,
        grid: Grid,
        recorder: Recorder,
        *,
        factors: str | int,
        rows: str | int | None = None,
        items: str | int | None = None,
        biases: str | int | None = None,
        client: str | None = None,
        message_type: str = "train",
    ) -> None:
        self._grid = grid
        self._recorder = recorder
        self._factors = str(factors)
        self._rows = self._factors if rows is None else str(rows)
        self._items = None if items is None else str(items)
        self._biases = None if biases is None else str(biases)
        self._client = client
        self._message_type = message_type
        self._round = -1
        self._broadcast: tuple[np.ndarray, np.ndarray | None] = (np.zeros((0, 0)), None)
        self._nodes: set[int] = set()  # to which the round's factors went
        self._answered = True
        self._unanswered: dict[str, _Sent] = {}

    def __getattr__(self, name: str) -> Any:
        """Whatever else a grid can do."""
        return getattr(self._grid, name)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages, as ``flwr.serverapp.Grid.push_messages`` does."""
        batch = list(messages)
        sent = [self._sending(message) for message in batch]
        identifiers = list(self._grid.push_messages(batch))
        self._await(identifiers, sent)
        return identifiers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Fetch answers, as ``flwr.serverapp.Grid.pull_messages`` does."""
        replies = list(self._grid.pull_messages(message_ids))
        self._receive(replies)
        return replies

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and wait for the answers, as ``flwr.serverapp.Grid.send_and_receive`` does."""
        batch = list(messages)
        sent = [self._sending(message) for message in batch]
        replies = list(self._grid.send_and_receive(batch, timeout=timeout))
        identifiers = [message.metadata.message_id for message in batch]  # given by sending
        self._await(identifiers, sent)
        self._receive(replies)
        for identifier in identifiers:
            self._unanswered.pop(identifier, None)
        return replies

    def _sending(self, message: Message) -> _Sent | None:
        """Record the factors of a message, unless it is not about them."""
        metadata = message.metadata
        if metadata.message_type.split(".")[0] != self._message_type:
            return None
        where = f"a message of type {self._message_type}"
        factors = _array(message.content, self._factors, where)
        biases = None if self._biases is None else _array(message.content, self._biases, where)
        if self._answered or metadata.dst_node_id in self._nodes:
            told = _entry(message.content, SERVER_ROUND)
            self._round = max(self._round + 1, told if isinstance(told, int) else 0)
            self._answered = False
            self._nodes.clear()
            self._broadcast = factors, biases
            self._recorder.broadcast(self._round, factors, biases=biases)
        self._nodes.add(metadata.dst_node_id)
        of_all, added = self._broadcast
        same = np.array_equal(factors, of_all) and (
            biases is None or added is None or np.array_equal(biases, added)
        )
        return _Sent(self._round, None if same else factors, biases)

    def _await(self, identifiers: Iterable[str], sent: Iterable[_Sent | None]) -> None:
        pairs = zip(identifiers, sent, strict=False)  # a grid that could send nothing gives no identifiers
        self._unanswered |= {identifier: one for identifier, one in pairs if identifier and one is not None}

    def _receive(self, replies: Iterable[Message]) -> None:
        for reply in replies:
            sent = self._unanswered.pop(reply.metadata.reply_to_message_id, None)
            if sent is None or reply.has_error():
                continue
            self._answered |= sent.round_ == self._round
            client = self._who(reply)
            if sent.factors is not None:
                self._recorder.broadcast(sent.round_, sent.factors, to=client, biases=sent.biases)
            where = f"the answer of client {client!r:.40}"
            rows = _array(reply.content, self._rows, where)
            items = None if self._items is None else _array(reply.content, self._items, where)
            self._recorder.upload(sent.round_, client, rows, items)

    def _who(self, reply: Message) -> Hashable:
        node = reply.metadata.src_node_id
        if self._client is None:
            return node
        name = _entry(reply.content, self._client)
        if isinstance(name, Hashable) and name is not None:
            return name
        raise InputError(
            f"client must name one number or text in the metrics or the configuration of an answer, got "
            f"{self._client!r:.80}, which the answer of node {node} has not; leave it out for the node's id"
        )


def _array(content: RecordDict, name: str, where: str) -> np.ndarray:
    """The array of a name, in whichever record it is."""
    records = list(content.array_records.values())
    having = [record for record in records if name in record]
    if len(having) == 1:
        return having[0][name].numpy()
    names = sorted({key for record in records for key in record})
    raise InputError(
        f"the array {name!r:.80} must be in one record of {where}, got it in {len(having)}; arrays there: "
        f"{', '.join(names)!s:.200}"
    )


def _entry(content: RecordDict, name: str) -> Any:
    """The entry of a name in the configuration or the metrics, or None."""
    for records in (content.config_records, content.metric_records):
        for record in records.values():
            if name in record:
                return record[name]
    return None
