"""Recorded ciphertexts as rows again, for parties who hold the clients' key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gmpy2
import numpy as np
from phe import paillier

from defenses.encryption.array_cipher import SecretKey
from defenses.encryption.fixed_point import Rules
from defenses.encryption.ideal_cipher import IdealCipher
from defenses.encryption.paillier import Paillier
from defenses.encryption.paillier_cipher import PaillierCipher
from victims.common.errors import InputError
from victims.transcript.manifest import Manifest
from victims.transcript.recorded import Opener


def opener(manifest: Manifest, key: Mapping[str, str]) -> Opener:
    """Make the function that turns the ciphertexts of a recording into rows."""
    entry = next((told for told in manifest.defenses if told.get("name") == "paillier"), None)
    if entry is None:
        raise InputError("the key is for recordings under the defense paillier, which this one does not name")
    names = ("key_bits", "fraction_bits", "packed", "ideal")
    try:
        defense = Paillier(**{name: entry[name] for name in names if name in entry})
    except TypeError:
        raise InputError("the manifest's entry for paillier must hold numbers and true or false") from None
    point = defense.encoding(manifest.factors, manifest.n_users)
    rules = Rules(point, manifest.factors, np.zeros(0, np.int64), 1, False)
    wanted = "ideal" if defense.ideal else "paillier"
    if key.get("scheme") != wanted:
        raise InputError(f"the key must have the scheme {wanted!r}, got {str(key.get('scheme'))[:80]!r}")
    if defense.ideal:
        return IdealCipher(rules, mask_of(key)).opened
    return PaillierCipher(rules, secret_of(key, defense.key_bits, entry)).opened


def mask_of(key: Mapping[str, str]) -> bytes:
    """Read the mask's seed from a key file."""
    try:
        mask = bytes.fromhex(key["mask"])
    except (KeyError, TypeError, ValueError):
        mask = b""
    if len(mask) != 32:
        raise InputError("the key's mask must be 64 hexadecimal digits")
    return mask


def secret_of(key: Mapping[str, str], key_bits: int, entry: Mapping[str, Any]) -> SecretKey:
    """Read the primes from a key file, and check them against each other and the manifest's modulus."""
    try:
        p, q = (int(key[name][: key_bits // 4], 16) for name in ("p", "q"))
    except (KeyError, TypeError, ValueError):
        raise InputError("the key's p and q must be hexadecimal numbers") from None
    if min(p, q) < 3 or p == q or (p * q).bit_length() != key_bits:
        raise InputError(f"the key's p and q must be primes with a product of {key_bits} bits")
    if not (gmpy2.is_prime(p) and gmpy2.is_prime(q)):
        raise InputError("the key's p and q must be primes, the file is damaged")
    if entry.get("modulus", f"{p * q:x}") != f"{p * q:x}":
        raise InputError("the key is not the one of this recording: its modulus is another")
    return SecretKey.of(paillier.PaillierPrivateKey(paillier.PaillierPublicKey(p * q), p, q))
