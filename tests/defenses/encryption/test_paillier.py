"""Encoding, packing and encryption: against exact integers, and against phe."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from defenses.ciphers import FixedPoint, SecretKey, generate_keys
from victims.common.errors import InputError

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
