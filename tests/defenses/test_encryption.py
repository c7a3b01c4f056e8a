"""Encryption: the cryptosystem, and recordings under it."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.factories import make_attack, make_defense, make_victim
from audit.keys import view_of
from audit.scoring.score import score
from audit.scoring.truth import read_truth
from defenses.ciphers import FixedPoint, SecretKey, generate_keys
from defenses.encryption import Paillier, opener
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate
from victims.protocols.fedmf import FedMF
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import record
from victims.training import start
from victims.transcript.beside import key_path, truth_path
from victims.transcript.reader import open_transcript

INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture(scope="module")
def keys() -> SecretKey:
    return generate_keys(2048)


class TestEncoding:
    @given(st.lists(INT64, min_size=1, max_size=40), st.integers(1, 33))
    def test_lanes_come_back(self, numbers, lanes):
        """Zero, the extremes and every pattern of signs and carries."""
        encoding, row = FixedPoint(lanes), np.array([numbers], np.int64)
        plain = encoding.pack(row)
        assert len(plain) == encoding.plaintexts(len(numbers))
        np.testing.assert_array_equal(encoding.unpack(plain, len(numbers)), row)

    @given(st.data())
    def test_sums_of_packed_numbers_are_packed_sums(self, data):
        summands = data.draw(st.integers(1, 50))
        bound = (2**63 - 1) // summands
        number = st.integers(-bound, bound)
        rows = np.array(
            data.draw(st.lists(st.lists(number, min_size=5, max_size=5), max_size=summands, min_size=1))
        )
        encoding = FixedPoint(lanes=2, summands=summands)
        plain = encoding.pack(rows)
        parts = encoding.plaintexts(5)
        total = [sum(plain[part::parts]) for part in range(parts)]
        np.testing.assert_array_equal(encoding.unpack(total, 5)[0], rows.sum(axis=0))

    @given(st.floats(-1e3, 1e3), st.integers(0, 52), st.integers(1, 1000))
    def test_quantisation_is_half_a_step_at_most(self, number, fraction_bits, summands):
        encoding = FixedPoint(3, fraction_bits, summands)
        if abs(number) * 1.01 >= encoding.largest:
            return
        back = encoding.restored(encoding.quantised(np.array([number])))
        assert abs(back[0] - number) <= 2.0 ** -(fraction_bits + 1)

    @pytest.mark.parametrize("value", [np.nan, np.inf, 8400.0, -8400.0, 1e300])
    def test_what_could_overflow_is_refused(self, value):
        encoding = FixedPoint(lanes=15, summands=1000)
        with pytest.raises(InputError, match=r"finite|must be below 8388"):
            encoding.quantised(np.array([0.0, value]))

    def test_a_sum_that_left_its_lanes_is_refused(self):
        encoding = FixedPoint(lanes=2)
        for plain in (2**200, -(2**200), 2**128, 1 << 127):
            with pytest.raises(InputError, match="must fit into 2 lanes"):
                encoding.unpack([plain], 2)

    @pytest.mark.parametrize(
        "wrong", [{"lanes": 0}, {"lanes": 1, "fraction_bits": 53}, {"lanes": 1, "summands": 0}]
    )
    def test_bad_parameters(self, wrong):
        with pytest.raises(InputError, match="of fixed point must be"):
            FixedPoint(**wrong)


class TestCipher:
    @settings(max_examples=10, deadline=None)
    @given(st.lists(st.integers(-(2**1900), 2**1900), min_size=1, max_size=3))
    def test_both_ways_to_encrypt_agree_with_phe(self, keys, plaintexts):
        for ciphertexts in (keys.encrypt(plaintexts), keys.public.encrypt(plaintexts)):
            assert keys.decrypt(ciphertexts) == plaintexts
            n = keys.public.phe.n
            assert [keys.phe.raw_decrypt(int(c)) for c in ciphertexts] == [p % n for p in plaintexts]

    def test_reads_what_phe_encrypts(self, keys):
        theirs = [keys.public.phe.raw_encrypt(m) for m in (0, 1, keys.public.phe.n - 5)]
        stored = [int(c).to_bytes(keys.public.ciphertext_bytes, "big") for c in theirs]
        assert keys.decrypt([keys.public.from_bytes(c) for c in stored]) == [0, 1, -5]

    def test_sums(self, keys):
        encoding = FixedPoint(lanes=31, summands=20)
        rows = np.random.default_rng(0).normal(0, 100, (20, 31))
        ciphertexts = keys.encrypt(encoding.pack(encoding.quantised(rows)))
        total = encoding.unpack(keys.decrypt([keys.public.add(ciphertexts)]), 31)
        np.testing.assert_array_equal(total[0], encoding.quantised(rows).sum(axis=0))

    def test_the_mask_is_an_nth_residue_of_full_order(self, keys):
        """c = r^n mod n^2 for m = 0: its power to (p - 1)(q - 1) is 1, and it is not the same twice."""
        n, square = int(keys.public.n), int(keys.public.square)
        first, second = (int(c) for c in keys.encrypt([0, 0]))
        order = (int(keys.phe.p) - 1) * (int(keys.phe.q) - 1)
        assert first != second
        assert pow(first, order, square) == pow(second, order, square) == 1
        assert pow(first, n, square) != 1

    def test_wrong_key_truncated_and_altered(self, keys):
        other = generate_keys(2048)
        encoding = FixedPoint(lanes=2)
        stored = keys.public.to_bytes(keys.encrypt(encoding.pack(np.array([[1, -2]])))[0])
        with pytest.raises(InputError, match="512 bytes, got 511: truncated"):
            keys.public.from_bytes(stored[:-1])
        for bad in (b"\0" * 512, b"\xff" * 512, int(keys.public.n).to_bytes(512, "big")):
            with pytest.raises(InputError, match="invertible number below"):
                keys.public.from_bytes(bad)
        flipped = bytes([stored[0] ^ 1]) + stored[1:]
        for secret, ciphertext in ((other, stored), (keys, flipped)):
            try:
                read = secret.public.from_bytes(ciphertext)
            except InputError:
                continue  # out of the other key's range
            with pytest.raises(InputError, match="altered, or has another key"):
                encoding.unpack(secret.decrypt([read]), 2)

    def test_too_large_for_the_key(self, keys):
        with pytest.raises(InputError, match="must have at most 2046 bits"):
            keys.encrypt([2**2047])

    def test_key_lengths(self):
        with pytest.raises(InputError, match="must be 1024, 2048 or 3072, got 512"):
            generate_keys(512)
        with pytest.warns(UserWarning, match="below today's recommendations"):
            assert generate_keys(1024).public.plaintext_bits == 1022


WEAK = "ignore:1024-bit"
PRIVMVMF = {"update": "semi-als", "weighting": "include-unrated"}


def privmvmf(ratings, path, *, rounds=(1, 2), sampling="rho=1", **options):
    """PrivMVMF: FedMVMF under two defenses."""
    defenses = [make_defense(f"unrated-sampling:{sampling}"), Paillier(**options)]
    record(FedMVMF(**PRIVMVMF), ratings, path, rounds=rounds, defenses=defenses)
    return open_transcript(path)


def fedmf(ratings, path, *, rounds=(3, 4), victim=None, **options):
    victim = victim or FedMF(factors=5, client_learning_rate=3e-3)
    record(victim, ratings, path, rounds=rounds, defenses=[Paillier(**options)])
    return open_transcript(path)


@pytest.fixture(scope="module")
def few():
    """12 users, 20 items: real encryption takes its time for each number."""
    return generate(Synthetic(users=12, items=20, ratings_per_user=6.0))


@pytest.fixture(scope="module")
def real(few, tmp_path_factory):
    """Both systems with the real cryptosystem, recorded once."""
    folder = tmp_path_factory.mktemp("real")
    with pytest.warns(UserWarning, match="1024-bit Paillier keys"):
        return {
            "privmvmf": privmvmf(few, folder / "p", key_bits=1024, decrypters=3),
            "fedmf": fedmf(few, folder / "f", key_bits=1024),
        }


def stood_in(ratings, folder):
    return {
        "privmvmf": privmvmf(ratings, folder / "p", ideal=True, decrypters=3),
        "fedmf": fedmf(ratings, folder / "f", ideal=True),
    }


@pytest.fixture(scope="module")
def stand_in(few, tmp_path_factory):
    """What ``real`` records, without the cryptosystem."""
    return stood_in(few, tmp_path_factory.mktemp("stand-in"))


@pytest.fixture(scope="module")
def ideal(ratings, tmp_path_factory):
    return stood_in(ratings, tmp_path_factory.mktemp("ideal"))


def assert_same_view(one, other):
    for name in ("sender", "kind", "index", "gradient"):
        for a, b in zip(getattr(one.messages, name) or (), getattr(other.messages, name) or (), strict=True):
            np.testing.assert_array_equal(a, b)
    assert set(one.sums) == set(other.sums)
    assert set(one.broadcasts) == set(other.broadcasts)
    for number, sums in one.sums.items():
        np.testing.assert_array_equal(sums.values, other.sums[number].values)
        np.testing.assert_array_equal(sums.index, other.sums[number].index)
    for number, broadcast in one.broadcasts.items():
        np.testing.assert_array_equal(broadcast.factors, other.broadcasts[number].factors)


@pytest.mark.parametrize("system", ["privmvmf", "fedmf"])
def test_the_stand_in_shows_the_same_bit_for_bit(real, stand_in, system):
    """Sums went through encryption, multiplication and decryption on one side only."""
    adversary = "item-server"
    assert_same_view(view_of(real[system], adversary), view_of(stand_in[system], adversary))


@pytest.mark.thorough
def test_unpacked_is_the_same(tmp_path):
    """One number per ciphertext, as published."""
    ratings = generate(Synthetic(users=5, items=8, ratings_per_user=3.0))
    few = {"rounds": (1,), "key_bits": 1024, "decrypters": 3}
    found = []
    for packed in (True, False):
        with pytest.warns(UserWarning, match="1024-bit"):
            found.append(privmvmf(ratings, tmp_path / f"{packed}", packed=packed, **few))
    packed, single = found
    assert_same_view(view_of(packed, "server+client"), view_of(single, "server+client"))
    lengths = [len(t.sealed.uploads[0][0].as_py()) for t in (packed, single)]
    assert lengths == [256, 6 * 256]


@pytest.mark.parametrize("system", ["privmvmf", "fedmf"])
def test_training_is_that_of_the_plain_run_up_to_rounding(ratings, system):
    """Numbers are rounded to 2^-40, nothing else changes."""
    victim = FedMVMF(**PRIVMVMF) if system == "privmvmf" else FedMF(factors=5, client_learning_rate=3e-3)
    others = [make_defense("unrated-sampling:rho=1")] if system == "privmvmf" else []
    plain = start(victim, ratings, others, 0)
    sealed = start(victim, ratings, [*others, Paillier(ideal=True)], 0)
    for number in range(5):
        plain, sealed = plain.trained(number), sealed.trained(number)
    # Adam divides by gradients that may be tiny, and carries the rounding on
    np.testing.assert_allclose(sealed.state.item_factors, plain.state.item_factors, atol=1e-6)
    assert not np.array_equal(sealed.state.item_factors, plain.state.item_factors)


class TestViews:
    def test_the_server_of_privmvmf_has_lists_and_sums(self, ideal, ratings):
        view = view_of(ideal["privmvmf"], "server")
        assert view.messages.gradient is None
        assert view.rounds.tolist() == [1, 2] == sorted(view.broadcasts) == sorted(view.sums)
        opened = view_of(ideal["privmvmf"], "server+client")
        for number, sums in view.sums.items():
            one = opened.during([number]).messages
            index, kind = np.concatenate(one.index), np.concatenate(one.kind)
            gradient = np.concatenate(one.gradient)
            for at in range(sums.index.size):
                mine = (index == sums.index[at]) & (kind == sums.kind[at])
                np.testing.assert_allclose(sums.values[at], gradient[mine].sum(axis=0), atol=1e-9)
            assert sums.index.size == np.unique(np.stack([index, kind]), axis=1).shape[1]

    def test_the_server_of_fedmf_has_lists_alone(self, ideal):
        view = view_of(ideal["fedmf"], "server")
        assert view.messages.gradient is None
        assert not view.broadcasts
        assert not view.sums
        assert view.messages.n_rows > 0

    def test_decrypters_share_the_sums(self, ideal):
        recorded = ideal["privmvmf"]
        who = np.unique(recorded.sums.sender)
        assert who.size == 3
        view = view_of(recorded, "decrypter")
        assert {1, 2} == set(view.sums)
        whole = view_of(recorded, "server").sums[1].index.size
        assert whole / 3 - 1 <= view.sums[1].index.size <= whole / 3 + 1
        assert set(view.users) <= {who[0]}
        assert not view_of(recorded, f"client:{(set(range(40)) - set(who.tolist())).pop()}").sums

    def test_a_client_of_fedmf_reads_the_factors_and_its_own_rows(self, ideal):
        view = view_of(ideal["fedmf"], "client:5")
        assert set(view.broadcasts) == {3, 4}
        assert np.isfinite(view.broadcasts[3].factors).all()
        assert view.users.tolist() == [5]
        assert view.messages.gradient is not None

    def test_collusion_reads_everything(self, ideal):
        for system, attack in (("privmvmf", "spectral"), ("fedmf", "grid")):
            recorded = ideal[system]
            view, truth = view_of(recorded, "server+client"), read_truth(truth_path(recorded.path))
            found = make_attack(attack).attack(view, 0)
            rows = {row.metric: row.summary for row in score(found, recorded.manifest, truth)}
            # a client with one rating leaves grid more than one answer
            assert rows["rated_rating_accuracy"].value > 0.85, (system, rows["rated_rating_accuracy"])

    def test_without_the_key_file_the_key_holder_is_refused(self, ideal):
        with pytest.raises(InputError, match=r"put the key file p\.key\.json beside the recording"):
            ideal["privmvmf"].view("server+client")

    @pytest.mark.parametrize("attack", ["spectral", "grid", "likelihood", "root-hybr", "eq24-corrected"])
    def test_attacks_on_rows_abstain_and_say_why(self, ideal, attack):
        for system in ("privmvmf", "fedmf"):
            found = make_attack(attack).attack(view_of(ideal[system], "server"), 0)
            assert len(found.abstained) == found.users.size > 0
            assert {*found.abstained.values()} == {"the uploads are encrypted and the adversary holds no key"}

    def test_no_decrypter_where_nothing_is_decrypted(self, ideal):
        with pytest.raises(InputError, match="needs decrypted sums"):
            view_of(ideal["fedmf"], "decrypter")


class TestThreshold:
    def test_small_sums_stay_encrypted(self, ratings, tmp_path):
        recorded = privmvmf(ratings, tmp_path / "t", sampling="rho=0.1", ideal=True, min_contributors=9)
        view = view_of(recorded, "server")
        for number, sums in view.sums.items():
            part = view.during([number]).messages
            index = np.concatenate(part.index)[np.concatenate(part.kind) == 0]
            count = np.bincount(index, minlength=ratings.n_items)
            assert (count < 9).any()
            np.testing.assert_array_equal(np.sort(sums.index[sums.kind == 0]), np.flatnonzero(count >= 9))


class TestRefusals:
    def test_encryption_comes_last(self, ratings):
        with pytest.raises(InputError, match="paillier must be the last defense"):
            start(FedMVMF(), ratings, [Paillier(ideal=True), make_defense("laplace:scale=1")], 0)

    def test_sums_need_all_clients(self, ratings, tmp_path):
        with pytest.raises(InputError, match="users must be all 40 where sums are decrypted"):
            record(FedMVMF(), ratings, tmp_path / "x", rounds=[0], users=[1], defenses=[Paillier(ideal=True)])

    def test_too_large_a_number(self, ratings):
        with pytest.raises(InputError, match="numbers to encrypt must be below"):
            start(FedMF(init_scale=1e9), ratings, [Paillier(ideal=True)], 0)

    def test_more_decrypters_than_clients(self, ratings):
        with pytest.raises(InputError, match="decrypters must be at most 40"):
            start(FedMVMF(), ratings, [Paillier(ideal=True, decrypters=41)], 0)

    @pytest.mark.parametrize(
        ("options", "rule"),
        [("key_bits=512", "1024, 2048 or 3072"), ("fraction_bits=60", "between 0 and 52"),
         ("decrypters=0", ">= 1"), ("min_contributors=0", ">= 1")],
    )  # fmt: skip
    def test_options(self, options, rule):
        with pytest.raises(InputError, match=f"of paillier must be {rule}"):
            make_defense(f"paillier:{options}")


class TestHostileFiles:
    def rewritten(self, recorded, tmp_path, change):
        """A copy of a recording with its messages' columns changed."""
        import shutil

        path = tmp_path / "copy"
        shutil.copytree(recorded.path, path)
        shutil.copy(key_path(recorded.path), key_path(path))
        with pa.ipc.open_file(str(path / "messages.arrow")) as reader:
            table = reader.read_all()
        columns = {name: table[name].to_pylist() for name in table.schema.names}
        change(columns)
        new = pa.table({name: pa.array(columns[name], table.schema.field(name).type) for name in columns})
        with pa.ipc.new_file(str(path / "messages.arrow"), new.schema) as writer:
            writer.write_table(new)
        return path

    @pytest.mark.parametrize("kind", ["real", "ideal"])
    def test_truncated(self, request, tmp_path, kind):
        def change(columns):
            columns["ciphertext"][0] = columns["ciphertext"][0][:-1]

        path = self.rewritten(request.getfixturevalue(kind)["fedmf"], tmp_path, change)
        with pytest.raises(InputError, match="ciphertext 0 must have"):
            view_of(open_transcript(path), "server+client")

    def test_altered(self, real, tmp_path):
        def change(columns):
            row = bytearray(columns["ciphertext"][0])
            row[100] ^= 1
            columns["ciphertext"][0] = bytes(row)

        path = self.rewritten(real["privmvmf"], tmp_path, change)
        with pytest.raises(InputError, match="the ciphertext was altered, or has another key"):
            view_of(open_transcript(path), "server+client")

    def test_neither_gradient_nor_ciphertext(self, ideal, tmp_path):
        def change(columns):
            columns["ciphertext"][3] = None

        with pytest.raises(InputError, match="row 3: needs a gradient or a ciphertext"):
            open_transcript(self.rewritten(ideal["privmvmf"], tmp_path, change))

    def test_some_uploads_in_the_clear(self, ideal, tmp_path):
        def change(columns):
            columns["gradient"][3] = [0.0] * 6

        with pytest.raises(InputError, match="row 3: either every upload has a gradient or none has"):
            open_transcript(self.rewritten(ideal["privmvmf"], tmp_path, change))

    def test_a_sum_twice(self, ideal, tmp_path):
        def change(columns):
            at = columns["kind"].index("item-sum")
            for column in columns.values():
                column.append(column[at])

        with pytest.raises(InputError, match="must hold each sum once"):
            open_transcript(self.rewritten(ideal["privmvmf"], tmp_path, change))

    @pytest.mark.parametrize(
        ("content", "message"),
        [("{", "is not valid JSON"), ("[1]", "must hold a JSON object"), ("{}", "must have the scheme"),
         ('{"scheme": "paillier"}', "must be hexadecimal"),
         ('{"scheme": "paillier", "p": [1], "q": 5}', "must be hexadecimal"),
         ('{"scheme": "paillier", "p": "3", "q": "5"}', "product of 1024 bits")],
    )  # fmt: skip
    def test_damaged_keys(self, real, tmp_path, content, message):
        import shutil

        path = tmp_path / "copy"
        shutil.copytree(real["fedmf"].path, path)
        key_path(path).write_text(content)
        with pytest.raises(InputError, match=message):
            view_of(open_transcript(path), "server+client")

    def test_the_key_of_another_recording(self, real):
        key = json.loads(key_path(real["fedmf"].path).read_text())
        with pytest.raises(InputError, match="its modulus is another"):
            opener(real["privmvmf"].manifest, key)
        even = {**key, "p": f"{int(key['p'], 16) + 1:x}"}
        with pytest.raises(InputError, match="must be primes"):
            opener(real["fedmf"].manifest, even)


def test_nothing_of_the_key_or_the_numbers_is_in_the_recording(ideal, real):
    for recorded in (ideal["privmvmf"], real["privmvmf"], real["fedmf"]):
        key = json.loads(key_path(recorded.path).read_text())
        content = b"".join(file.read_bytes() for file in recorded.path.iterdir())
        for value in key.values():
            if len(value) > 20:
                assert value.encode() not in content
                assert bytes.fromhex(value.zfill(len(value) + len(value) % 2)) not in content
        opened = view_of(recorded, "server+client").messages.gradient
        row = opened[0][0]
        assert row.any()
        assert row[0].tobytes() not in content.replace(b"\0" * 8, b"")
    assert oct(key_path(ideal["fedmf"].path).stat().st_mode)[-3:] == "600"


def test_exponents_tell_rated_from_unrated(ratings, tmp_path):
    """Full-text hides which items are rated, unless the encoding's exponents are published."""
    victim = make_victim("fedmf", {"upload": "full-text", "factors": 5, "client_learning_rate": 3e-3})
    for publish in (False, True):
        recorded = fedmf(
            ratings, tmp_path / f"{publish}", victim=victim, ideal=True, publish_exponents=publish
        )
        found = make_attack("rated-set").attack(view_of(recorded, "server"), 0)
        if not publish:
            assert len(found.abstained) == found.users.size
            continue
        rows = score(found, recorded.manifest, read_truth(truth_path(recorded.path)))
        values = {row.metric: row.summary.value for row in rows}
        assert values["rated_set_f1"] == 1.0
