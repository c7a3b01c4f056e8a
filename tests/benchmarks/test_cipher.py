"""Packed Paillier beside phe as it comes: same key, same gradients, one run. Nothing here is asserted.

    python -m pytest -s -o addopts= --import-mode=importlib tests/benchmarks/test_cipher.py

Prints microseconds per number and the ratio. phe encrypts one number per ciphertext with one fixed exponent,
as Mai & Pang 2022 and Chai et al. 2021 do; both sides use gmpy2 and what cores the machine has as they come.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest

from defenses.ciphers import KEY_BITS, LANE_BITS, FixedPoint, generate_keys

NUMBERS = 6000
WITH_PHE = 120
REPEATS = 3
OPERATIONS = ("encryption, public key", "encryption, CRT", "decryption", "addition")


def best(work) -> float:
    """Shortest of some repetitions, seconds."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.mark.parametrize("bits", KEY_BITS)
def test_packed_beside_phe(bits):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        secret = generate_keys(bits)
    public = secret.public
    encoding = FixedPoint(lanes=public.plaintext_bits // LANE_BITS, summands=1000)
    numbers = np.random.default_rng(0).normal(0, 1, (NUMBERS // encoding.lanes, encoding.lanes))
    plain = encoding.pack(encoding.quantised(numbers))
    sealed = secret.encrypt(plain)
    ours = [
        best(lambda: public.encrypt(plain)),
        best(lambda: secret.encrypt(encoding.pack(encoding.quantised(numbers)))),
        best(lambda: encoding.unpack(secret.decrypt(sealed), encoding.lanes)),
        best(lambda: [public.add((one, one)) for one in sealed]),
    ]
    flat = numbers.ravel()[:WITH_PHE]
    encrypted = [public.phe.encrypt(float(x), precision=2.0**-40) for x in flat]
    encrypting = best(lambda: [public.phe.encrypt(float(x), precision=2.0**-40) for x in flat])
    theirs = [
        encrypting,
        encrypting,
        best(lambda: [secret.phe.decrypt(one) for one in encrypted]),
        best(lambda: [one + one for one in encrypted]),
    ]
    print(f"\n{bits} bit, {encoding.lanes} numbers a ciphertext: microseconds per number")
    for name, us, them in zip(OPERATIONS, ours, theirs, strict=True):
        each, other = us / numbers.size * 1e6, them / WITH_PHE * 1e6
        print(f"  {name:24} {each:8.2f}   phe {other:9.1f}   ratio {other / each:6.1f}")
