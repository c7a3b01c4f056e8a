"""The reader: what a good file gives, and how every bad one ends."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attacks.closed_form.spectral import Spectral
from tests.oracles.simulator import Reference, table, write_table
from victims.common.errors import InputError
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import record
from victims.transcript.beside import truth_path, write_truth
from victims.transcript.columns import STATE, open_columns
from victims.transcript.manifest import Manifest
from victims.transcript.reader import open_transcript
from victims.transcript.writer import TranscriptWriter


def rewrite(path: Path, name: str, change) -> None:
    """Apply a change to the columns of one table of a transcript."""
    file = path / f"{name}.arrow"
    with pa.ipc.open_file(file) as reader:
        content = reader.read_all()
    write_table(path / name, change(content), "arrow")


def column(content: pa.Table, name: str, values) -> pa.Table:
    return content.set_column(content.schema.get_field_index(name), name, values)


def put(name: str, row: int, value):
    """Change one cell of an int32 column."""

    def change(content: pa.Table) -> pa.Table:
        values = content[name].to_numpy().copy()
        wide = np.int64 if value > 2**31 - 1 else np.int32
        values = values.astype(wide)
        values[row] = value
        return column(content, name, pa.array(values))

    return change


def put_vector(name: str, row: int, value: float):
    def change(content: pa.Table) -> pa.Table:
        vectors = np.stack(content[name].to_pylist())
        vectors[row, 0] = value
        return column(content, name, table(**{name: vectors})[name])

    return change


def narrower(name: str):
    def change(content: pa.Table) -> pa.Table:
        vectors = np.stack(content[name].to_pylist())[:, :-1]
        return column(content, name, table(**{name: vectors})[name])

    return change


BROKEN_TABLES = {
    "NaN gradient": ("messages", put_vector("gradient", 17, np.nan), r"row 17.*gradient.*finite"),
    "infinite gradient": ("messages", put_vector("gradient", 3, -np.inf), r"row 3.*finite"),
    "NaN state": ("state", put_vector("factor", 2, np.nan), r"state.*row 2.*factor.*finite"),
    "wrong K": ("messages", narrower("gradient"), r"gradient must have K = 3"),
    "wrong K of state": ("state", narrower("factor"), r"factor must have K = 3"),
    "item out of range": ("messages", put("index", 0, 30), r"row 0: index.*below 30.*got 30"),
    "negative index": ("messages", put("index", 5, -1), r"row 5: index must be >= 0"),
    "index of 64 bits": (
        "messages",
        put("index", 5, 2**40),
        r"row 5: index must be >= 0 and at most 2147483647",
    ),
    "sender out of range": ("messages", put("sender", 9, 12), r"row 9: sender"),
    "unknown party": ("messages", put("receiver", 4, -7), r"row 4: receiver"),
    "round of no manifest": ("messages", put("round", 1, 6), r"row 1: round"),
    "state of a wrong round": ("state", put("round", 1, 6), r"state.*row 1: round"),
    "missing column": ("messages", lambda c: c.drop_columns("sender"), r"one column 'sender'"),
    "missing state": ("state", lambda c: c.slice(1), r"row \d+: item 0 has no state in round 1"),
    "no state of a round": (
        "state",
        lambda c: c.filter(pa.compute.equal(c["round"], 1)),
        r"none for round 2",
    ),
    "repeated row": (
        "messages",
        lambda c: pa.concat_tables([c, c.slice(4, 1)]),
        r"must occur once, it repeats row 4",
    ),
    "repeated state": (
        "state",
        lambda c: pa.concat_tables([c, c.slice(4, 1)]),
        r"each round, kind and index must occur once",
    ),
    "text for numbers": (
        "messages",
        lambda c: column(c, "index", c["index"].cast(pa.string())),
        r"index must be int32",
    ),
    "floats for indices": (
        "messages",
        lambda c: column(c, "index", c["index"].cast(pa.float64())),
        r"index must be int32",
    ),
    "unknown kind": (
        "messages",
        lambda c: column(c, "kind", pa.array(["song"] * c.num_rows)),
        r"row 0: kind must be one of item",
    ),
    "null sender": (
        "messages",
        lambda c: column(c, "sender", pa.array([None] * c.num_rows, pa.int32())),
        r"row 0: sender must not be null",
    ),
    "null gradient": (
        "messages",
        lambda c: column(c, "gradient", pa.nulls(c.num_rows, c["gradient"].type)),
        r"row 0: gradient must not be null",
    ),
    "no rows": ("messages", lambda c: c.slice(0, 0), r"at least one row"),
}


class TestBroken:
    @pytest.mark.parametrize("case", BROKEN_TABLES)
    def test_tables(self, tmp_path, case):
        name, change, message = BROKEN_TABLES[case]
        path = Reference().write(tmp_path / "t")
        rewrite(path, name, change)
        with pytest.raises(InputError, match=message):
            open_transcript(path)

    @pytest.mark.parametrize(
        ("field", "value", "message"),
        [
            ("n_users", 10**12, "n_users"),
            ("n_users", 2_000_000_000, "n_users must be at most"),
            ("n_items", 2**31 - 1, "n_items must be at most"),
            ("n_items", 29, "index"),
            ("n_attributes", 10**9, "n_attributes must be at most"),
            ("n_users", -1, "n_users"),
            ("n_users", "12", "n_users"),
            ("factors", 10**9, "factors"),
            ("factors", 0, "factors"),
            ("factors", 4, "K = 4"),
            ("rounds", [], "rounds"),
            ("rounds", [1, 2, 3], "round 3"),
            ("rounds", [1, 1, 2], "repeat"),
            ("version", 3, "version"),
            ("format", "other", "format"),
            ("update", "adam", "update"),
            ("weighting", None, "weighting"),
            ("rating_levels", [], "rating_levels"),
            ("rating_levels", [0, 1], "rating_levels"),
            ("rating_levels", [2, 1], "rating_levels"),
            ("rating_levels", [1, float("nan")], "rating_levels"),
            ("hyperparameters", {"lambda_factors": float("inf")}, "lambda_factors"),
            ("hyperparameters", [1], "hyperparameters"),
            ("attribute_groups", [[0, 1], [1]], "share"),
            ("attribute_groups", [[0, 99]], "99"),
            ("upload", {"scale": 0.0}, "scale"),
        ],
    )
    def test_manifest(self, tmp_path, field, value, message):
        path = Reference().write(tmp_path / "t")
        manifest = {**Reference().manifest(), field: value}
        (path / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(InputError, match=message):
            open_transcript(path)

    @pytest.mark.parametrize(
        "content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"format": 1}']
    )
    def test_json(self, tmp_path, content):
        path = Reference().write(tmp_path / "t")
        (path / "manifest.json").write_bytes(content)
        with pytest.raises(InputError, match=r"manifest\.json"):
            open_transcript(path)

    def test_a_key_given_twice(self, tmp_path):
        path = Reference().write(tmp_path / "t")
        file = path / "manifest.json"
        file.write_text(file.read_text().replace("{", '{"update": "sgd", ', 1))
        with pytest.raises(InputError, match=r"manifest\.json.*'update' is given twice"):
            open_transcript(path)

    def test_not_a_transcript(self, tmp_path):
        (tmp_path / "file").write_bytes(bytes(range(256)))
        for name, what in (("", "a directory without it"), ("file", "a file"), ("x", "nothing of that name")):
            with pytest.raises(InputError, match=rf"directory with manifest\.json, got {what}; give the one"):
                open_transcript(tmp_path / name)

    @pytest.mark.parametrize("name", ["state", "messages"])
    def test_file_missing(self, tmp_path, name):
        path = Reference().write(tmp_path / "t")
        (path / f"{name}.arrow").unlink()
        with pytest.raises(InputError, match=f"{name}.arrow or {name}.parquet"):
            open_transcript(path)

    def test_parquet_with_rows_of_other_lengths(self, tmp_path):
        path = Reference().write(tmp_path / "t", form="parquet")
        content = pq.read_table(path / "messages.parquet")
        rows = content["gradient"].to_pylist()
        rows[6] = rows[6][:-1]
        ragged = column(content, "gradient", pa.array(rows, pa.list_(pa.float64())))
        pq.write_table(ragged, path / "messages.parquet")
        with pytest.raises(InputError, match="row 6: gradient must have K = 3"):
            open_transcript(path)

    @pytest.mark.parametrize("form", ["parquet", "lz4"])
    def test_what_grows_when_decoded_is_bounded(self, tmp_path, form, monkeypatch):
        zeros = write_table(tmp_path / "zeros", table(round=[0] * 200_000), form)
        assert zeros.stat().st_size < 100_000
        open_columns(zeros, STATE)
        monkeypatch.setattr("victims.transcript.columns.DECODED_BYTES", 300_000)
        monkeypatch.setattr("victims.transcript.columns.memory_limit", lambda _: contextlib.nullcontext())
        with pytest.raises(InputError, match="must decode to at most 300,000 bytes"):
            open_columns(zeros, STATE)

    @pytest.mark.parametrize("name", ["state.arrow", "messages.arrow"])
    def test_every_truncation_ends_in_an_error(self, tmp_path, name):
        path = Reference().write(tmp_path / "t")
        whole = (path / name).read_bytes()
        for size in [0, 1, 7, 8, *range(16, len(whole) - 1, max(1, len(whole) // 60))]:
            (path / name).write_bytes(whole[:size])
            with pytest.raises(InputError, match="not a readable"):
                open_transcript(path)

    @pytest.mark.thorough
    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_flipped_bytes_never_crash(self, tmp_path_factory, data):
        """A damaged file is refused, or it is a valid file with other numbers in it."""
        path = tmp_path_factory.mktemp("flip") / "t"
        Reference(n_users=3, n_items=4, single_raters=0).write(path)
        name = data.draw(st.sampled_from(["state.arrow", "messages.arrow", "manifest.json"]))
        content = bytearray((path / name).read_bytes())
        for _ in range(data.draw(st.integers(1, 8))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        (path / name).write_bytes(content)
        try:
            transcript = open_transcript(path)
            view = transcript.view(transcript.manifest.adversary)  # a name with another letter is nobody's
        except InputError:
            return
        Spectral().attack(view, 0)


class TestGood:
    @settings(max_examples=20, deadline=None)
    @given(
        n_users=st.integers(1, 6),
        n_items=st.integers(2, 9),
        factors=st.integers(1, 4),
        order=st.one_of(st.none(), st.integers(0, 99)),
        form=st.sampled_from(["arrow", "lz4", "parquet", "chunked"]),
        weighting=st.sampled_from(["observed-only", "include-unrated"]),
    )
    def test_round_trip(self, tmp_path_factory, n_users, n_items, factors, order, form, weighting):
        path = tmp_path_factory.mktemp("good") / "t"
        reference = Reference(
            weighting=weighting,
            n_users=n_users,
            n_items=n_items,
            factors=factors,
            single_raters=min(1, n_users),
        )
        reference.write(path, order=order, form=form)
        state, expected = reference.run()
        view = open_transcript(path).view("server")
        seen = 0
        for batch in view.batches():
            for uploads in batch.rounds:
                for row, user in enumerate(batch.users):
                    own = 0 if uploads.shared else row
                    valid = uploads.valid[0 if uploads.valid.shape[0] == 1 else row]
                    for slot in np.flatnonzero(valid):
                        kind = ("item", "attribute")[uploads.kind[own, slot]]
                        key = kind, int(uploads.index[own, slot])
                        np.testing.assert_array_equal(
                            uploads.gradients[row, slot], expected[uploads.round, int(user), *key]
                        )
                        np.testing.assert_array_equal(
                            uploads.broadcast.factors[uploads.position[own, slot]], state[uploads.round, *key]
                        )
                        seen += 1
        assert seen == len(expected)

    def test_our_recording_is_mapped_without_copies(self, transcripts):
        view = transcripts["semi-als", "include-unrated"].view("server")
        gradients = next(view.batches()).rounds[0].gradients
        assert not gradients.flags.writeable  # still the file
        assert not gradients.flags.owndata

    def test_sparse_state_of_a_large_catalogue(self, tmp_path):
        """A recording may hold the state of the used items only."""
        path = Reference(n_users=2, n_items=5, density=1.0, groups=(), single_raters=0).write(tmp_path / "t")
        far = 900_000

        def move(content: pa.Table) -> pa.Table:
            values = content["index"].to_numpy().copy()
            values[values == 4] = far
            return column(content, "index", pa.array(values, pa.int32()))

        for name in ("state", "messages"):
            rewrite(path, name, move)
        manifest = json.loads((path / "manifest.json").read_text()) | {"n_items": far + 1}
        (path / "manifest.json").write_text(json.dumps(manifest))
        found = Spectral().attack(open_transcript(path).view("server"), 0)
        assert found.abstained == {}
        assert max(index.max() for _, _, index, _, _ in found.rows()) == far


def test_unknown_constants_may_be_null(tmp_path):
    path = Reference().write(tmp_path / "t")
    manifest = Reference().manifest()
    manifest["hyperparameters"] |= {"lambda_factors": None, "optimizer": "adam"}
    (path / "manifest.json").write_text(json.dumps(manifest))
    constants = open_transcript(path).manifest.hyperparameters
    assert "lambda_factors" not in constants
    assert "optimizer" not in constants
    assert constants["alpha"] == 0.15


class TestViews:
    def test_who_sees_what(self, transcripts):
        transcript = transcripts["semi-als", "observed-only"]
        everything = transcript.view("server").messages.n_rows
        assert transcript.view("eavesdropper").messages.n_rows == everything
        assert transcript.view("item-server").messages.n_rows == 0
        own = transcript.view("client:3")
        assert own.users.tolist() == [3]

    @pytest.mark.parametrize(
        "name",
        ["client:40", "client:x", "client:\u00b2", pytest.param("client:" + "9" * 5000, id="long"), "friend"],
    )
    def test_unknown_party(self, transcripts, name):
        with pytest.raises(InputError, match="must"):
            transcripts["semi-als", "observed-only"].view(name)

    def test_recorded_by_the_server_only(self, outside):
        _, transcript = outside()
        with pytest.raises(InputError, match="--adversary server"):
            transcript.view("client:1")

    def test_shuffling_keeps_what_is_public(self, transcripts):
        view = transcripts["sgd", "observed-only"].view("server")
        null = view.shuffled(1)
        for name in ("round", "sender", "kind", "index"):
            np.testing.assert_array_equal(
                np.concatenate(getattr(view.messages, name)), np.concatenate(getattr(null.messages, name))
            )
        before = np.concatenate(view.messages.gradient)
        after = np.concatenate(null.messages.gradient)
        assert not np.array_equal(before, after)
        np.testing.assert_array_equal(np.sort(before, axis=0), np.sort(after, axis=0))
        kinds = np.concatenate(view.messages.kind)
        for kind in (0, 1):  # items stay among items
            np.testing.assert_array_equal(
                np.sort(before[kinds == kind], axis=0), np.sort(after[kinds == kind], axis=0)
            )


class TestWriter:
    def test_an_error_leaves_nothing_behind(self, ratings, tmp_path):
        manifest = FedMVMF().manifest(ratings, [0])
        with pytest.raises(RuntimeError), TranscriptWriter(tmp_path / "t", manifest):
            raise RuntimeError
        assert list(tmp_path.iterdir()) == []

    def test_same_seed_same_bytes(self, ratings, tmp_path):
        for name in ("a", "b"):
            record(FedMVMF(), ratings, tmp_path / name, rounds=[1], seed=9)
        for file in ("manifest.json", "state.arrow", "messages.arrow"):
            assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()

    def test_lists_numpy_sizes_and_text_paths(self, tmp_path):
        """What arrays and paths say may be said by lists, NumPy's scalars and text."""
        manifest = Manifest.model_validate(
            {
                **Reference().manifest(),
                "n_users": np.int64(3),
                "n_items": np.int32(2),
                "n_attributes": np.uint8(0),
                "factors": np.int64(2),
                "rounds": np.array([0, 1]),
                "rating_levels": np.arange(1.0, 6.0),
                "attribute_groups": (),
                "hyperparameters": {"lambda_factors": np.float64(2)},
                "upload": {"scale": np.float32(0.5)},
            }
        )
        assert manifest.hyperparameters == {"lambda_factors": 2.0}
        with TranscriptWriter(str(tmp_path / "t"), manifest) as writer:
            for number in np.array([0, 1]):
                writer.state(number, [[1, 2], [3, 4]], [])
                writer.messages(number, [0, 2], [0, 0], [1, 0], [[0.5, 1.0], [2.0, 3.0]])
        write_truth(str(truth_path(str(tmp_path / "t"))), [0, 2], [0, 0], [1, 0], [5, 3])
        view = open_transcript(str(tmp_path / "t")).view("server")
        assert view.users.tolist() == [0, 2]
        np.testing.assert_array_equal(view.messages.gradient[1], [[0.5, 1.0], [2.0, 3.0]])
        np.testing.assert_array_equal(view.broadcasts[1].factors, [[1, 2], [3, 4]])

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            (
                {"sender": np.array([2**32 + 2])},
                r"sender must be a client below n_users = 12.*got 4294967298",
            ),
            ({"sender": np.array([12])}, "sender must be a client below n_users = 12"),
            ({"sender": np.array([1.0])}, "sender must be one whole number a row, got float64"),
            ({"sender": np.array([True])}, "sender must be one whole number a row, got bool"),
            ({"sender": [-5]}, "sender must be .* or a party of the manifest, got -5 in row 0"),
            ({"receiver": 12}, "receiver must be a client"),
            ({"kind": [4]}, "kind must be a place in item, attribute, item-sum, attribute-sum, got 4"),
            ({"index": [2**31]}, "index must be >= 0 and fit into 32 bits, got 2147483648 in row 0"),
            ({"index": [30]}, r"index of kind item must be below 30 \(manifest\), got 30"),
            ({"index": [0, 1]}, "index must have as many rows as sender, 1, got 2"),
            ({"gradient": np.zeros((1, 4))}, r"gradient must have K = 3 .*got shape \(1, 4\)"),
            ({"gradient": np.full((1, 3), np.nan)}, "gradient must be finite"),
            ({"gradient": [["a", "b", "c"]]}, "gradient must be float32 or float64"),
            ({"round_": 7}, "round must be one of the manifest's rounds, got 7"),
            ({"round_": True}, "round must be a whole number, got True"),
            ({"sender": [[0], [0, 1]]}, "sender must have rows of one length"),
            ({"gradient": [[0.0, 0.0, 0.0], [1.0]]}, "gradient must have rows of one length"),
            ({"exponent": [2**40]}, "exponent must be an integer of 32 bits"),
        ],
    )
    def test_bad_rows_are_refused_and_leave_nothing(self, tmp_path, changes, message):
        manifest = Manifest.model_validate(Reference().manifest())
        good = {"round_": 1, "sender": [0], "kind": [0], "index": [0], "gradient": np.zeros((1, 3))}
        with pytest.raises(InputError, match=message), TranscriptWriter(tmp_path / "t", manifest) as writer:
            writer.messages(**(good | changes))
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"items": [[0.0, 0.0, 0.0], [1.0]]}, "items must have rows of one length"),
            ({"items": np.zeros((31, 3))}, "items must have at most 30 rows"),
            ({"ciphertext": [b"x"]}, "ciphertext must have as many rows as factors, 35, got 1"),
        ],
    )
    def test_bad_state_is_refused(self, tmp_path, changes, message):
        manifest = Manifest.model_validate(Reference().manifest())
        good = {"round_": 1, "items": np.zeros((30, 3)), "attributes": np.zeros((5, 3))}
        with pytest.raises(InputError, match=message), TranscriptWriter(tmp_path / "t", manifest) as writer:
            writer.state(**(good | changes))

    def test_widths_of_numbers(self, tmp_path):
        """Narrow numbers are widened, whether they come before or after wide ones."""
        manifest = Manifest.model_validate(Reference(rounds=(1,)).manifest())
        rows = np.zeros((2, 3))
        with TranscriptWriter(tmp_path / "wide", manifest) as writer:
            writer.state(1, np.ones((30, 3), np.float32), np.zeros((5, 3), np.float16))
            for number, width in enumerate((np.float32, np.float64, np.float16)):
                writer.messages(1, [number] * 2, [0, 0], [0, 1], rows.astype(width))
        types = {part.dtype for part in open_transcript(tmp_path / "wide").messages.gradient}
        assert types == {np.dtype(np.float64)}

    def test_a_round_must_not_be_missing(self, tmp_path):
        manifest = Manifest.model_validate(Reference().manifest())

        def half() -> None:
            with TranscriptWriter(tmp_path / "t", manifest) as writer:
                writer.state(1, np.zeros((30, 3)), np.zeros((5, 3)))
                writer.messages(1, [0], [0], [0], np.zeros((1, 3)))

        with pytest.raises(InputError, match=r"state must have rows for every round .* none for round 2"):
            half()
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("column", "value", "message"),
        [("user", [2**32], "user must be >= 0 and fit into 32 bits, got 4294967296"),
         ("kind", [2], "kind must be 0"), ("value", [np.inf], "value must be finite"),
         ("index", [0, 1], "index must have as many rows as user, 1, got 2")],
    )  # fmt: skip
    def test_bad_truth(self, tmp_path, column, value, message):
        good = {"user": [0], "kind": [0], "index": [0], "value": [3.0]}
        with pytest.raises(InputError, match=message):
            write_truth(tmp_path / "t.truth.arrow", **(good | {column: value}))
        assert list(tmp_path.iterdir()) == []


class TestMisspeltKeys:
    @pytest.mark.parametrize(
        ("where", "key", "meant"),
        [
            ((), "hyper_parameters", "hyperparameters"),
            ((), "ratingLevels", "rating_levels"),
            (("hyperparameters",), "regularisation", "regularization"),
            (("hyperparameters",), "client-learning-rate", "client_learning_rate"),
            (("upload",), "regularisation", "regularization"),
        ],
    )
    def test_refused_with_the_nearest(self, tmp_path, where, key, meant):
        path = Reference().write(tmp_path / "t")
        manifest = Reference().manifest()
        (manifest[where[0]] if where else manifest)[key] = 1
        (path / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(InputError, match=f"no key '{key}'; did you mean '{meant}'"):
            open_transcript(path)

    def test_keys_of_other_software_are_ignored(self, tmp_path):
        path = Reference().write(tmp_path / "t")
        manifest = Reference().manifest() | {"comment": "x", "git": {"rounds": 1}, "n_test_items": 4}
        manifest["hyperparameters"] |= {"user_learning_rate": 1.0, "alpha_decay": 0.5, "momentum": 0.9}
        (path / "manifest.json").write_text(json.dumps(manifest))
        assert open_transcript(path).manifest.hyperparameters["momentum"] == 0.9
