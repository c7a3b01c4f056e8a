"""The Flower grid that records, on messages as Flower has them; ``test_flower_live`` runs Flower itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pyarrow import feather

from victims.common.errors import InputError
from victims.recorders.flower import RecordedGrid
from victims.transcript.beside import clients_path
from victims.transcript.reader import open_transcript
from victims.transcript.recorder import Recorder

Q = np.random.default_rng(1).normal(size=(4, 3))


class Array:
    def __init__(self, values) -> None:
        self._values = np.asarray(values)

    def numpy(self) -> np.ndarray:
        return self._values.copy()


@dataclass
class Message:
    arrays: dict
    node: int
    kind: str = "train"
    config: dict = field(default_factory=dict)
    metrics: dict = field(default_factory=dict)
    answers: str = ""
    error: bool = False

    def __post_init__(self) -> None:
        self.metadata = SimpleNamespace(
            message_type=self.kind,
            dst_node_id=self.node,
            src_node_id=self.node,
            message_id="",
            reply_to_message_id=self.answers,
        )
        arrays = {name: Array(values) for name, values in self.arrays.items()}
        self.content = SimpleNamespace(
            array_records={"arrays": arrays} if arrays else {},
            config_records={"config": self.config},
            metric_records={"metrics": self.metrics},
        )

    def has_error(self) -> bool:
        return self.error


class Grid:
    """Answers a message with what its node is told to say: keywords of ``Message``, or nothing at all."""

    def __init__(self, says) -> None:
        self.says = says
        self.sent: dict[str, Message] = {}
        self.n_sent = 0

    def get_node_ids(self) -> list[int]:
        return [7, 8]

    def push_messages(self, messages):
        assert isinstance(messages, list)  # one of Flower's grids goes through them twice
        for message in messages:
            message.metadata.message_id = f"m{self.n_sent}"
            self.n_sent += 1
            self.sent[message.metadata.message_id] = message
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, message_ids):
        for name in sorted(message_ids):
            message = self.sent.get(name)
            if message and (said := self.says(message)) is not None:
                del self.sent[name]
                yield Message(**{"node": message.node, "kind": message.kind, "answers": name, **said})

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(set(self.push_messages(list(messages))))


def gradient(message: Message) -> dict:
    """Row j is the node's number times j + 1."""
    factors = message.content.array_records["arrays"]["q"].numpy()
    return {"arrays": {"q": message.node * np.arange(1, 1 + len(factors))[:, None] * np.ones_like(factors)}}


def recorded(folder: Path, says, use, **options) -> tuple:
    """The transcript of what ``use`` does with a grid, and the numbers of the clients."""
    path = folder / "run"
    with Recorder(path, rating_levels=[1, 2, 3], rule={"upload": "gradient"}) as recorder:
        use(RecordedGrid(Grid(says), recorder, **{"factors": "q", **options}))
        clients = recorder.clients
    return open_transcript(path), clients


def table(folder: Path, name: str) -> dict[str, list]:
    return feather.read_table(folder / "run" / f"{name}.arrow").to_pydict()


@pytest.mark.parametrize("own", [False, True])
def test_biases_of_items_are_recorded_with_the_factors(tmp_path, own):
    """Before: no way to tell them, so that an app with biases was read by nobody."""

    def use(grid):
        messages = [Message({"q": Q, "b": np.arange(4.0) + (own and node == 8)}, node) for node in (7, 8)]
        grid.send_and_receive(messages)

    recorded(tmp_path, gradient, use, biases="b")
    state = table(tmp_path, "state")
    assert state["bias"] == [0, 1, 2, 3] + [1, 2, 3, 4] * own
    assert state["holder"] == [None] * 4 + [1] * 4 * own


def training(q=Q, nodes=(7, 8), **options) -> list[Message]:
    return [Message({"q": q}, node, **options) for node in nodes]


def test_the_server_s_view_is_what_passed_the_grid(tmp_path):
    def use(grid):
        assert grid.get_node_ids() == [7, 8]
        for round_ in (1, 2):
            replies = grid.send_and_receive(
                iter(training(Q + round_, config={"server-round": round_})), timeout=9.0
            )
            assert [reply.node for reply in replies] == [7, 8]
            assert all("arrays" in reply.content.array_records for reply in replies)

    transcript, clients = recorded(tmp_path, gradient, use)
    assert clients == {7: 0, 8: 1}
    assert "7" in clients_path(tmp_path / "run").read_text()
    assert transcript.manifest.rounds == [1, 2]
    assert (transcript.manifest.n_items, transcript.manifest.factors) == (4, 3)
    for batch in transcript.view("server").batches(1 << 20):
        for uploads in batch.rounds:
            np.testing.assert_array_equal(uploads.gradients[:, 0, 0], [7, 8])
            np.testing.assert_array_equal(uploads.broadcast.factors[:4], Q + uploads.round)


def test_what_is_not_training_or_an_answer_to_it_is_passed_on_unrecorded(tmp_path):
    def says(message):
        if message.kind == "query":
            return {"arrays": {}}
        return {"arrays": {}, "error": True} if message.node == 8 else gradient(message)

    def use(grid):
        assert len(grid.send_and_receive(training(kind="query"))) == 2
        assert len(grid.send_and_receive(training(kind="train.warm"))) == 2

    transcript, clients = recorded(tmp_path, says, use)
    assert list(clients) == [7]
    assert transcript.manifest.rounds == [0]


def test_loops_that_push_and_pull_by_themselves(tmp_path):
    """Message by message; one node answers a round late, one twice in a row."""
    late = {"m1"}

    def says(message):
        return None if message.metadata.message_id in late else gradient(message)

    def use(grid):
        first = [*grid.push_messages(training(nodes=[7])), *grid.push_messages(training(nodes=[8]))]
        assert len(grid.pull_messages(first)) == 1
        second = grid.push_messages(training(Q + 1, nodes=[7]))
        late.clear()
        assert len(grid.pull_messages([*first, *second])) == 2
        grid.pull_messages(grid.push_messages(training(Q + 2, nodes=[7, 7])))

    transcript, _ = recorded(tmp_path, says, use)
    assert transcript.manifest.rounds == [0, 1, 2, 3]
    messages = table(tmp_path, "messages")
    assert set(zip(messages["round"], messages["sender"], strict=True)) == {
        (0, 0),
        (0, 1),
        (1, 0),
        (2, 0),
        (3, 0),
    }


def test_a_node_with_factors_of_its_own_holds_them_alone(tmp_path):
    def use(grid):
        grid.send_and_receive([*training(nodes=[7]), *training(Q + 5, nodes=[8])])

    recorded(tmp_path, gradient, use)
    state = table(tmp_path, "state")
    own = [row for row, holder in enumerate(state["holder"]) if holder is not None]
    assert {state["holder"][row] for row in own} == {1}
    np.testing.assert_allclose([state["factor"][row] for row in own], Q + 5)


def test_names_of_items_clients_and_unnamed_arrays(tmp_path):
    def says(message):
        return {"arrays": {"0": np.ones((2, 3)), "1": [3, 1]}, "metrics": {"partition-id": message.node - 7}}

    def use(grid):
        grid.send_and_receive([Message({"0": Q}, node) for node in (7, 8)])

    _, clients = recorded(tmp_path, says, use, factors=0, items=1, client="partition-id")
    assert clients == {0: 0, 1: 1}
    assert table(tmp_path, "messages")["index"] == [3, 1, 3, 1]


@pytest.mark.parametrize(
    ("says", "options", "message"),
    [
        (gradient, {"factors": "w"}, "'w' must be in one record of a message of type train.*arrays there: q"),
        (gradient, {"rows": "w"}, "'w' must be in one record of the answer of client 7"),
        (gradient, {"client": "partition-id"}, "'partition-id', which the answer of node 7 has not"),
        (lambda _: {"arrays": {"q": np.ones((4, 2))}}, {}, "rows must have K = 3"),
    ],
)
def test_what_is_not_there_ends_the_recording(tmp_path, says, options, message):
    def use(grid):
        grid.send_and_receive(training())

    with pytest.raises(InputError, match=message):
        recorded(tmp_path, says, use, **options)
    assert not list(tmp_path.iterdir())


def test_what_nobody_answers_in_time_is_forgotten(tmp_path):
    """Or a long training with clients that drop out would fill the memory."""
    silent = [True]

    def use(grid):
        late = training()
        assert not grid.send_and_receive(late, timeout=0.0)
        silent.clear()
        assert len(grid.pull_messages([message.metadata.message_id for message in late])) == 2

    with pytest.raises(InputError, match="would hold no upload"):
        recorded(tmp_path, lambda message: None if silent else gradient(message), use)
