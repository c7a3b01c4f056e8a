"""``Recorder``: what it refuses and when, that a refused call leaves no trace, and that its files open."""

from __future__ import annotations

import json
import os
import re
import resource
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from victims.common.errors import InputError, OutputError
from victims.transcript import ledger, writer
from victims.transcript.beside import clients_path, truth_path
from victims.transcript.given_columns import number_of, round_of
from victims.transcript.reader import open_transcript
from victims.transcript.recorder import Recorder, mapping_of, size_of

Q = np.arange(1.0, 9.0).reshape(4, 2)
ROW = np.ones((1, 2))
LEVELS = [1, 2, 3]


def recorder_of(path, **declared) -> Recorder:
    return Recorder(path, **({"rating_levels": LEVELS} | declared))


DECLARED = {
    "an abbreviation": (
        {"constants": {"client_lr": 0.1}},
        "got 'client_lr'; did you mean 'client_learning_rate'",
    ),
    "a constant of the rule": ({"constants": {"momentum": 0.9}}, "got 'momentum'; What else.*goes into rule"),
    "a constant in words": (
        {"constants": {"alpha": "small"}},
        "alpha of constants must be a number of at most 1e.30 in size, got 'sm",
    ),
    "a constant that is too large": (
        {"constants": {"alpha": 1e40}},
        "alpha of constants must be a number of at most",
    ),
    "a misspelt key of the rule": (
        {"rule": {"reducton": "sum"}},
        "rule has no key 'reducton'; did you mean 'red",
    ),
    "an unknown reduction": ({"rule": {"reduction": "max"}}, "reduction must be 'sum' or 'mean', got max"),
    "an unknown weighting": ({"weighting": "both"}, "weighting must be .*, got both"),
    "levels that descend": ({"rating_levels": [2, 1]}, "rating_levels must ascend and be > 0"),
    "no item": ({"n_items": 0}, "n_items must be a whole number >= 1, got 0"),
}


@pytest.mark.parametrize("case", DECLARED)
def test_what_is_declared_wrongly(tmp_path, case):
    declared, message = DECLARED[case]
    with pytest.raises(InputError, match=message):
        recorder_of(tmp_path / "t", **declared)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: round_of("round", "1"), "round must be a whole number, got '1'"),
        (lambda: round_of("round", True), "round must be a whole number, got True"),
        (
            lambda: number_of("weight", [1, 2]),
            r"weight must be a number of at most 1e\+30 in size, got \[1, 2\]",
        ),
        (lambda: size_of("n_items", "4"), "n_items must be a whole number >= 1, got '4'; leave it out"),
        (lambda: mapping_of("rule", "sgd"), "rule must map names to values, got 'sgd'"),
    ],
)
def test_other_types(call, message):
    """What a caller without a type checker may give; in the methods the tests check types themselves."""
    with pytest.raises(InputError, match=message):
        call()


def test_none_is_unknown(tmp_path):
    assert recorder_of(tmp_path / "t", constants={"alpha": None}, rule={"momentum": 0.9})


def upload(recorder, **changes):
    given = {"round_": 0, "client": "b", "rows": ROW, "items": [0]} | changes
    recorder.upload(**given)


CALLS = {
    "a round that is none": (lambda r: r.broadcast(-1, Q), "round must be >= 0 and fit into 32 bits, got -1"),
    "a kind that is none": (
        lambda r: upload(r, kind="items"),
        "or another name, got 'items'; did you mean 'item'",
    ),
    "a second broadcast": (
        lambda r: r.broadcast(0, Q),
        "once for the item factors of a round, got round 0 again",
    ),
    "another width": (lambda r: r.broadcast(1, np.ones((4, 3))), "factors must have K = 2 numbers a row"),
    "rows that are not finite": (lambda r: upload(r, rows=[[1.0, np.nan]]), "rows must be finite"),
    "fewer items than rows": (
        lambda r: upload(r, items=[0, 1]),
        "items must have as many rows as rows, 1, got 2",
    ),
    "an item that is none": (
        lambda r: upload(r, items=[-1]),
        "items must be >= 0 and fit into 32 bits, got -1",
    ),
    "an item without factors": (
        lambda r: upload(r, items=[4]),
        "upload must be about items whose factors were broadcast before, got item 4 in round 0, where 4 were",
    ),
    "a name of the format": (lambda r: upload(r, kind="item-again"), "is what the format calls rows of its"),
    "a name without end": (lambda r: upload(r, kind="w" * 101), "kind must be a name of 1 to 100 printable"),
    "another width of a kind": (
        lambda r: upload(r, rows=np.ones((1, 4)), kind="mlp.weight"),
        "rows must have K = 3 numbers a row",
    ),
    "rows of no row": (lambda r: upload(r, rows=np.ones((1, 0)), kind="mlp.0"), "width must be"),
    "references of rows that are held": (
        lambda r: upload(r, kind="mlp.0", references=ROW),
        "references must be left out of rows of kind 'mlp.0', which no attack reads",
    ),
    "a basis of another size": (lambda r: upload(r, basis=np.ones((3, 2))), "basis must have a row for each"),
    "references in some uploads": (
        lambda r: upload(r, references=ROW),
        "references must be given in every upload or in none, got some after none",
    ),
    "biases in some broadcasts": (
        lambda r: r.broadcast(1, np.ones((4, 2)), biases=np.ones(4)),
        "biases must be given in every broadcast or in none, got some after none; give zeros",
    ),
    "nobody who sends to neighbours": (
        lambda r: upload(r, client=None, to=r.NEIGHBOURS),
        "client must be named where rows go to Recorder.NEIGHBOURS",
    ),
    "the server as a client": (
        lambda r: upload(r, client=r.SERVER),
        "client must name a client, got Recorder.SERVER",
    ),
    "the truth of nobody": (lambda r: r.truth(None, [0], [1]), "client must name a client, got None"),
    "a missing value as a client": (lambda r: upload(r, client=pd.NA), "client must name a client, got <NA>"),
    "masked rows": (
        lambda r: upload(r, rows=np.ma.masked_array(np.ones((2, 2)), [[0, 0], [0, 1]]), items=[0, 1]),
        "rows must have no masked entries, got some in row 1; leave those rows out, or fill them",
    ),
    "a masked number in a list of lists": (
        lambda r: upload(r, rows=[[1.0, 2.0], [1.0, np.ma.masked]], items=[0, 1]),
        "rows must have no masked entries, got some in row 1",
    ),
    "an edge that ends early": (
        lambda r: r.edge("a", "b", 1.0, 3, 2),
        "last_round must be >= first_round = 3, got 2",
    ),
    "an edge without a weight": (
        lambda r: r.edge("a", "b", np.inf),
        "weight must be a number of at most 1e\\+30",
    ),
    "a rating off the grid": (
        lambda r: r.truth("b", [0], [2.5]),
        r"ratings must be of rating_levels .* got 2.5 of",
    ),
    "a rating twice": (
        lambda r: r.truth("b", [1, 1], [1, 2]),
        "truth of client 'b' must name each item once, got item 1",
    ),
    "a rating again": (
        lambda r: r.truth("a", [0], [1]),
        "truth of client 'a' must name each item once, got item 0",
    ),
    "fewer ratings than items": (
        lambda r: r.truth("b", [0], []),
        "ratings must have as many rows as items, 1, got 0",
    ),
    "attributes again": (
        lambda r: r.attributes("a", [0]),
        "attributes must be called once for a client, got client 'a'",
    ),
    "attributes beyond 1": (
        lambda r: r.attributes("b", [0, 2]),
        "values must be in 0..1, got 2 of client 'b'",
    ),
}


def begun(path) -> Recorder:
    recorder = recorder_of(path)
    recorder.__enter__()
    recorder.broadcast(0, Q)
    recorder.broadcast(0, Q, to="a")
    recorder.upload(0, "a", np.ones((2, 2)), [0, 3])
    recorder.upload(0, "a", np.ones((2, 3)), kind="mlp.weight")
    recorder.truth("a", [0, 3], [1, 2])
    recorder.attributes("a", [0, 1])
    return recorder


@pytest.mark.parametrize("case", CALLS)
def test_a_refused_call_leaves_no_trace(tmp_path, case):
    """Who goes on after it gets the files that come without it."""
    call, message = CALLS[case]
    tried, plain = begun(tmp_path / "tried"), begun(tmp_path / "plain")
    with pytest.raises(InputError, match=message) as caught:
        call(tried)
    assert len(str(caught.value)) <= 300
    for recorder in (tried, plain):
        recorder.upload(0, "c", ROW, [1])
        recorder.__exit__(None, None, None)
    for name in ("manifest.json", "state.arrow", "messages.arrow"):
        assert (tmp_path / "tried" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    assert truth_path(tmp_path / "tried").read_bytes() == truth_path(tmp_path / "plain").read_bytes()
    assert clients_path(tmp_path / "tried").read_bytes() == clients_path(tmp_path / "plain").read_bytes()
    open_transcript(tmp_path / "tried")


def test_masked_arrays_without_a_masked_entry_are_arrays(tmp_path):
    recorder = begun(tmp_path / "t")
    upload(recorder, rows=np.ma.masked_array(ROW, False), items=np.ma.masked_array([2], False))
    recorder.__exit__(None, None, None)
    assert open_transcript(tmp_path / "t").messages.n_rows == 3


def test_eight_threads_at_once(tmp_path):
    """Each call is whole: the file opens, every row of every client is there, in the order of its calls."""
    threads, clients, rounds = 8, 60, 3
    before = sys.getswitchinterval()

    def sent(thread: int) -> None:
        rng = np.random.default_rng(thread)
        for client in range(clients):
            for number in range(rounds):
                for items in np.split(rng.permutation(len(Q)), 2):
                    recorder.upload(number, (thread, client), Q[items], items)
            recorder.truth((thread, client), [0, 1], [1, 2])

    sys.setswitchinterval(1e-6)  # threads take turns inside of calls
    try:
        with recorder_of(tmp_path / "t") as recorder:
            for number in range(rounds):
                recorder.broadcast(number, Q)
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(sent, range(threads)))
    finally:
        sys.setswitchinterval(before)
    opened = open_transcript(tmp_path / "t")
    messages = opened.messages
    assert opened.manifest.n_users == threads * clients
    assert messages.n_rows == threads * clients * rounds * len(Q)
    for index, gradient in zip(messages.index, messages.gradient, strict=True):
        np.testing.assert_array_equal(gradient, Q[index])


ENDS = {
    "nothing": (lambda r: None, "would hold no upload"),
    "references alone": (lambda r: upload(r, references=ROW), "would hold no broadcast"),
    "neighbours without an edge": (
        lambda r: (r.broadcast(0, Q), upload(r, to=r.NEIGHBOURS)),
        "upload to Recorder.NEIGHBOURS needs an edge, got none from client 'b' in round 0; call edge",
    ),
    "an edge of other rounds": (
        lambda r: (
            [r.broadcast(number, Q) for number in (2, 3)],
            [upload(r, round_=number, to=r.NEIGHBOURS) for number in (2, 3)],
            r.edge("b", "c", last_round=2),
        ),
        "got none from client 'b' in round 3",
    ),
    "an edge the other way": (
        lambda r: (r.broadcast(0, Q), upload(r, to=r.NEIGHBOURS), r.edge("c", "b")),
        "got none from client 'b' in round 0",
    ),
    "two edges": (
        lambda r: (r.broadcast(0, Q), upload(r), r.edge("b", "c", 1.0, 0, 5), r.edge("b", "c", 2.0, 4)),
        "edge must be called once for a sender, a receiver and a round, got 'b' to 'c' again in round 4",
    ),
    "groups beyond the attributes": (
        lambda r: (r.broadcast(0, Q), upload(r), r.attributes("b", [0, 1])),
        "attribute_groups must name columns below n_attributes = 2, got 2",
    ),
}


@pytest.mark.parametrize("case", ENDS)
def test_what_is_told_at_the_end(tmp_path, case):
    calls, message = ENDS[case]
    groups = [[0], [1, 2]] if case.startswith("groups") else []
    with pytest.raises(InputError, match=message), recorder_of(tmp_path / "t", attribute_groups=groups) as r:
        calls(r)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("what", ["upload", "truth"])
def test_what_memory_forgets_is_found_in_the_files(tmp_path, monkeypatch, what, again):
    """One rating a call, many clients: the first client's last item repeats its first one, or does not."""
    monkeypatch.setattr(ledger, "KEPT", 3)

    def calls(recorder: Recorder) -> None:
        recorder.broadcast(0, Q)
        for item in (2, 1, 2 if again else 3):
            for client in "abc":
                if what == "truth":
                    recorder.truth(client, [item if client == "a" else item + 7], [1])
                else:
                    recorder.upload(0, client, ROW, [item if client == "a" else 3 - item])
        if what == "truth":
            upload(recorder)

    if not again or what == "upload":
        with recorder_of(tmp_path / "t") as recorder:
            calls(recorder)
        opened = open_transcript(tmp_path / "t")
        assert opened.other == ({"item-again": 3} if again else {})
        return
    rule = "truth of client 'a' must name each item once.*got item 2 again"
    again, accepted = pytest.raises(InputError, match=rule), False
    with again, recorder_of(tmp_path / "t") as recorder:
        calls(recorder)
        accepted = True  # memory had forgotten it
    assert accepted
    assert not list(tmp_path.iterdir())


def test_outside_of_its_context(tmp_path):
    recorder = recorder_of(tmp_path / "t")
    with pytest.raises(InputError, match=r"must be called inside its context.*is not begun"):
        recorder.broadcast(0, Q)
    with recorder:
        recorder.broadcast(0, Q)
        upload(recorder)
    with pytest.raises(InputError, match="is over"):
        upload(recorder)
    with pytest.raises(InputError, match="make another"), recorder:
        pass
    assert open_transcript(tmp_path / "t").messages.n_rows == 1


def test_who_came_first_stays(tmp_path):
    """Somebody else made the recording meanwhile."""
    recorder = begun(tmp_path / "t")
    (tmp_path / "t").mkdir()
    with pytest.raises(InputError, match="t exists"):
        recorder.__exit__(None, None, None)
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, InputError])
def test_whatever_stops_it(tmp_path, stop):
    recorder = begun(tmp_path / "new" / "t")
    recorder.__exit__(stop, stop(), None)
    assert not list(tmp_path.iterdir())


def test_rows_as_they_were_given(tmp_path):
    """What the program does to its arrays afterwards changes nothing, and wider numbers come later."""
    rows, items = np.ones((2, 2), np.float32), np.array([3, 1])
    with recorder_of(tmp_path / "t", rule={"rows": "rated"}) as recorder:
        recorder.broadcast(5, Q.astype(np.float32))
        recorder.upload(5, "a", rows, items)
        rows[:], items[:] = 9, 0
        recorder.upload(5, None, ROW, [2], to="b")
        recorder.upload(5, "a", [[1e-9, 1 / 3]], [0])
        recorder.broadcast(6, Q / 3)
        recorder.upload(6, ("b", 1), Q)
        recorder.truth("a", [3, 1], [1, 2])
    transcript = open_transcript(tmp_path / "t")
    messages = transcript.messages
    assert [np.concatenate(column).tolist() for column in (messages.index, messages.sequence)] == [
        [3, 1, 0, 0, 1, 2, 3],
        [0, 1, 2, 0, 1, 2, 3],
    ]
    expected = [[1, 1], [1, 1], [1e-9, 1 / 3], *Q.tolist()]
    np.testing.assert_array_equal(np.concatenate(messages.gradient), expected)
    np.testing.assert_array_equal(transcript.broadcasts[6].factors, Q / 3)
    assert transcript.view("client:1").anonymous_rows == 1
    assert transcript.view().unplaced_rows == 0
    assert json.loads(clients_path(tmp_path / "t").read_text()) == {"0": "'a'", "1": "'b'", "2": "('b', 1)"}
    for private in (clients_path(tmp_path / "t"), truth_path(tmp_path / "t")):
        assert stat.S_IMODE(private.stat().st_mode) == 0o600


def test_the_truth_is_private_while_it_is_recorded(tmp_path, monkeypatch):
    """Before: everybody could read it until the end."""
    monkeypatch.setattr(writer, "ROWS", 1)
    with recorder_of(tmp_path / "t") as recorder:
        recorder.truth("a", [1], [2])
        (written,) = tmp_path.rglob("truth.arrow")
        assert stat.S_IMODE(written.stat().st_mode) == 0o600
        recorder.broadcast(0, Q)
        recorder.upload(0, "a", ROW, [0])


@pytest.mark.parametrize("upload", ["gradient", "weights"])
def test_dense_uploads_without_what_carries_nothing(tmp_path, upload):
    own = Q + 1
    with recorder_of(tmp_path / "t", rule={"upload": upload}) as recorder:
        recorder.broadcast(0, Q)
        recorder.broadcast(0, own, to="b")
        start = Q if upload == "weights" else np.zeros_like(Q)
        recorder.upload(0, "a", start + [[0, 0], [1, 0], [0, 0], [0, -1]])
        recorder.upload(0, "b", own if upload == "weights" else np.ones_like(Q))
    transcript = open_transcript(tmp_path / "t")
    assert np.concatenate(transcript.messages.index).tolist() == [1, 3, 0, 1, 2, 3]
    assert transcript.manifest.rule.rows == "all"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("batch", [3, 1 << 16])
def test_what_is_not_refused_opens(tmp_path, monkeypatch, seed, batch):
    """Calls at random: some are refused, and those that are not make files that open and hold their rows."""
    monkeypatch.setattr(writer, "ROWS", batch)
    monkeypatch.setattr(ledger, "KEPT", 10)
    rng = np.random.default_rng(seed)
    names = ["a", "b", 3, ("d",), None]
    expected = refused = 0

    def some(values):
        return values[rng.integers(len(values))]

    def at_random(recorder: Recorder) -> int:
        number, client, size = int(rng.integers(4)), some(names), int(rng.integers(1, 5))
        items = rng.permutation(7)[:size]
        match some(["broadcast", "upload", "upload", "upload", "truth", "attributes", "edge"]):
            case "broadcast":
                dtype = some([np.float32, np.float64])
                recorder.broadcast(number, rng.normal(size=(7, 2)).astype(dtype), to=client)
            case "upload":
                to = some([recorder.SERVER, recorder.SERVER, recorder.NEIGHBOURS, "b"])
                recorder.upload(number, client, rng.normal(size=(size, 2)), items, to=to)
                return size
            case "truth":
                recorder.truth(client, items, rng.choice(LEVELS, size))
            case "attributes":
                recorder.attributes(client, rng.random(3))
            case "edge":
                recorder.edge(client, some(names), rng.random(), number, number + 2)
        return 0

    end = ""
    try:
        with recorder_of(tmp_path / "t", n_items=7) as recorder:
            recorder.broadcast(0, Q[[0, 1, 2, 3, 0, 1, 2]])
            for _ in range(60):
                try:
                    expected += at_random(recorder)
                except InputError:
                    refused += 1
            for client in names[:4]:  # or nearly every end is refused, for want of an edge
                recorder.edge(client, "e")
    except InputError as error:
        end = str(error)
    assert 0 < refused < 60
    if end:
        assert re.search("edge must be called once|must upload each|must name each", end)
        assert not list(tmp_path.iterdir())
        return
    transcript = open_transcript(tmp_path / "t")
    anonymous = 0 if transcript.anonymous is None else transcript.anonymous.n_rows
    assert transcript.messages.n_rows + anonymous + sum(transcript.other.values()) == expected


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="lists open files as Linux does")
def test_a_full_disk_gets_its_space_back(tmp_path):
    """Before: the removed file stayed open, and kept its place, for as long as the recorder lived."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    recorder = Recorder(tmp_path / "t", rating_levels=[1, 2])

    def record():
        with recorder:
            recorder.broadcast(0, np.ones((1000, 8)))
            for client in range(100):
                recorder.upload(0, client, np.ones((1000, 8)), np.arange(1000))

    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
        with pytest.raises(OutputError, match="file too large"):
            record()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    assert not [link for link in links if os.path.lexists(link) and str(tmp_path) in os.readlink(link)]


@pytest.mark.parametrize("kept", [ledger.KEPT, 3])
def test_each_receiver_may_get_rows_of_its_own(tmp_path, monkeypatch, kept):
    """Noise of each message, links that drop some: to two a row each, twice to one a row that comes again."""
    monkeypatch.setattr(ledger, "KEPT", kept)
    with recorder_of(tmp_path / "t") as recorder:
        recorder.broadcast(0, Q)
        for to, items in (("b", [0, 1]), ("c", [1]), (Recorder.SERVER, [0, 1, 2])):
            recorder.upload(0, "a", np.ones((len(items), 2)), items, to=to)
        recorder.upload(0, "a", ROW, [1], to="c")
    transcript = open_transcript(tmp_path / "t")
    rows = [transcript.view(who).messages.n_rows for who in ("neighbour:b", "neighbour:c", "server")]
    assert rows == [2, 1, 3]
    assert transcript.other == {"item-again": 1}


def test_a_program_may_fill_its_arrays_anew(tmp_path):
    """One buffer for all calls, in the types that are written as they come."""
    items, rows, ratings = np.zeros(2, np.int32), np.zeros((2, 2)), np.zeros(2)
    with recorder_of(tmp_path / "t") as recorder:
        recorder.broadcast(0, Q)
        for first, more in ((0, 1), (2, 3)):
            items[:], rows[:], ratings[:] = (first, more), first + 1, more
            recorder.upload(0, "a", rows, items)
            recorder.truth("a", items, ratings)
        recorder.upload(0, "a", ROW, [0])
        with pytest.raises(InputError, match="got item 1 again"):
            recorder.truth("a", [1], [1])
    messages = open_transcript(tmp_path / "t").messages
    assert np.concatenate(messages.index).tolist() == [0, 1, 2, 3]
    assert np.concatenate(messages.gradient)[:, 0].tolist() == [1, 1, 3, 3]


W = 2 * np.ones((4, 2))
HELD = {  # what neural programs send beside rows of items, and what of it is held beside four of them
    "weights of a network": (
        lambda r: r.upload(0, "a", np.ones((8, 3)), kind="mlp.0.weight"),
        {"mlp.0.weight": 8},
    ),
    "a bias of the output layer": (lambda r: r.upload(0, "a", [1.0], kind="other"), {"other": 1}),
    "a second item table": (
        lambda r: (r.broadcast(0, Q, kind="item-implicit"), r.upload(0, "a", W, kind="item-implicit")),
        {},
    ),
    "one of another width": (
        lambda r: (
            r.broadcast(0, np.ones((4, 6)), kind="item-implicit"),
            r.upload(0, "a", np.ones((4, 6)), kind="item-implicit"),
        ),
        {"item-implicit": 8},
    ),
    "an item twice": (lambda r: r.upload(0, "a", W[:1], [1]), {"item-again": 1, "table-rows": 1}),
    "a table that a client is pulled towards": (lambda r: r.broadcast(0, 3 * Q, to="a"), {}),
    "one beside that which it starts from": (
        lambda r: r.broadcast(0, Q, kind="item-pull", to="a"),
        {"item-pull": 4},
    ),
    "user rows of a shared model": (lambda r: r.upload(0, "a", W, [0, 7, 7, 9], kind="user"), {"user": 4}),
    "rows of nobody": (lambda r: r.upload(0, None, W, kind="mlp.0.weight", to="b"), {"mlp.0.weight": 4}),
}


@pytest.mark.parametrize("case", HELD)
def test_what_neural_programs_send(tmp_path, case):
    """It is held, counted and listed, and rows of items are read as they are without it."""
    calls, held = HELD[case]
    for path, more in ((tmp_path / "t", calls), (tmp_path / "plain", lambda r: None)):
        with recorder_of(path, kinds={"user": {"of": "client"}}) as recorder:
            recorder.broadcast(0, Q)
            recorder.upload(0, "a", W)
            more(recorder)
    opened, plain = open_transcript(tmp_path / "t"), open_transcript(tmp_path / "plain")
    assert opened.other == held
    for name in ("index", "gradient", "sequence"):
        pairs = zip(getattr(opened.messages, name), getattr(plain.messages, name), strict=False)
        assert all(np.array_equal(one, other) for one, other in pairs)
    assert [
        one.removeprefix("messages") for one in os.listdir(tmp_path / "t") if one.startswith("messages")
    ] == [".arrow"]


def test_rows_that_are_held_are_who_they_are_for(tmp_path):
    with recorder_of(tmp_path / "t", kinds={"user": {"of": "client", "width": 3}}) as recorder:
        recorder.broadcast(0, Q)
        recorder.broadcast(0, np.float32([[1, 2, 3]]), kind="mlp.0.weight")
        recorder.broadcast(0, [[4, 5, 6]], kind="mlp.0.weight", to="b")
        recorder.upload(0, "a", W, to="c")
        recorder.upload(0, "a", [[7, 8, 9]], [5], kind="user", to="c")
    opened = open_transcript(tmp_path / "t")
    seen = {}
    for who in "abc":
        told = opened.view(f"client:{who}").told
        seen[who] = {name: rows.numbers.tolist() for name, rows in told.items()}
    network, user = [[1.0, 2.0, 3.0]], [[7.0, 8.0, 9.0]]
    assert seen["a"] == seen["c"] == {"mlp.0.weight": network, "user": user}
    assert sorted(seen["b"]["mlp.0.weight"]) == [*network, [4.0, 5.0, 6.0]]


def test_items_that_come_again_are_told_by_their_place(tmp_path):
    """The first row of an item is the one that attacks read; the others are held in the order sent."""
    rows = np.arange(10.0).reshape(5, 2)
    with recorder_of(tmp_path / "t") as recorder:
        recorder.broadcast(0, Q)
        recorder.upload(0, "a", rows, [1, 2, 1, 0, 1])
        recorder.upload(0, "b", rows[:1], [1])
    view = open_transcript(tmp_path / "t").view("server")
    table = pa.ipc.open_file(tmp_path / "t" / "messages.arrow").read_all().to_pandas()
    assert view.messages.n_rows == 4
    assert view.told["item-again"].numbers.tolist() == rows[[2, 4]].tolist()
    assert table.loc[table["kind"] == "item-again", "sequence"].tolist() == [2, 4]


@pytest.mark.parametrize("upload", ["gradient", "weights"])
def test_unchanged_rows_are_told_from_those_that_are_not_sent(tmp_path, upload):
    """Of a list they stay, also where others send tables; who sent a table, even an empty one, is told."""
    before = Q if upload == "weights" else 0 * Q
    after = before + np.array([[0.1], [0], [0.2], [0]])
    with recorder_of(tmp_path / "t", rule={"upload": upload}) as recorder:
        recorder.broadcast(0, Q)
        recorder.upload(0, "table", after)
        recorder.upload(0, "list", after[:2], [0, 1])
        recorder.upload(0, "nothing", before)
        recorder.upload(0, "part", after[:2])
    opened = open_transcript(tmp_path / "t")
    sent = {0: [0, 2], 1: [0, 1], 3: [0]}
    messages = opened.view("server").messages
    sender, index = np.concatenate(messages.sender), np.concatenate(messages.index)
    assert {user: index[sender == user].tolist() for user in np.unique(sender).tolist()} == sent
    tables = opened.told["table-rows"]
    assert dict(zip(tables.sender.tolist(), tables.value.tolist(), strict=True)) == {0: 4, 2: 4, 3: 2}


def test_rows_of_a_known_basis(tmp_path):
    basis = np.array([[1.0, 1.0], [0.0, 2.0], [3.0, 0.0]])
    with recorder_of(tmp_path / "t") as recorder:
        recorder.broadcast(0, Q)
        recorder.broadcast(0, basis, kind="item-basis")
        recorder.upload(0, "a", [[1.0, 2.0, 0.0]], [3], basis=basis)
    view = open_transcript(tmp_path / "t").view("server")
    assert view.messages.gradient[0].tolist() == [[1.0, 5.0]]
    assert view.told["item-basis"].numbers.tolist() == basis.tolist()


def test_biases_of_each_receiver(tmp_path):
    with recorder_of(tmp_path / "t") as recorder:
        recorder.broadcast(0, Q, biases=np.ones(4))
        recorder.broadcast(0, Q, biases=2 * np.ones(4), to="b")
        recorder.upload(0, "a", W, to="b")
    opened = open_transcript(tmp_path / "t")
    seen = [opened.view(who).broadcasts[0].bias.tolist() for who in ("server", "client:b")]
    assert seen == [[1.0] * 4, [2.0] * 4]


LISTS = {
    "another length": (pa.array([[1.0, 2.0], [1.0]]), "value must have 2 .width of the kind. numbers, got 1"),
    "some without": (
        pa.array([[1.0, 2.0], None]),
        "either every row of a kind has numbers or none has, got both",
    ),
    "no numbers": (pa.array([[1.0, 2.0], [1.0, np.inf]]), "value must be finite"),
    "words": (pa.array([["a", "b"], ["c", "d"]]), "value must be fixed_size_list"),
}


@pytest.mark.parametrize("case", LISTS)
def test_hostile_rows_of_other_widths(tmp_path, case):
    column, message = LISTS[case]
    with recorder_of(tmp_path / "t") as recorder:
        recorder.broadcast(0, Q)
        recorder.upload(0, "a", W[:1], [0])
        recorder.upload(0, "a", W[:2], kind="mlp.0.weight")
    file = tmp_path / "t" / "messages.arrow"
    table = pa.ipc.open_file(file).read_all()
    nothing = pa.nulls(1, column.type)
    table = table.set_column(table.column_names.index("value"), "value", pa.chunked_array([nothing, column]))
    file.unlink()
    with pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table.combine_chunks())
    with pytest.raises(InputError, match=message):
        open_transcript(tmp_path / "t")


def test_more_kinds_than_there_may_be(tmp_path):
    with recorder_of(tmp_path / "t") as recorder:
        recorder.broadcast(0, Q)
        recorder.upload(0, "a", ROW, [0])
        for number in range(90):
            recorder.upload(0, "a", [1.0], kind=f"layer.{number}")
        with pytest.raises(InputError, match="kind must be one of 90 at most that no attack reads"):
            recorder.upload(0, "a", [1.0], kind="layer.90")
    assert len(open_transcript(tmp_path / "t").other) == 90
