"""How much of an encrypted round is the server's, counted in multiplications modulo n squared.

A ratio of counts hangs on no machine and on no library. Under Paillier with a key of b bits and public-key
encryption, as in papers 000 and 001 (square and multiply, half of the exponent's bits set):

- to encrypt takes r^n, an exponentiation with b bits: b squarings and b / 2 multiplications;
- to decrypt takes two exponentiations modulo p^2 and q^2 with b / 2 bits; a multiplication of half the length
  is a quarter of one;
- to add takes one multiplication;
- to subtract takes an inverse, too, worth five (GMP's, at 2,048 and 4,096 bits; ``row_cost`` measures it).
"""

from __future__ import annotations

ENCRYPTION, DECRYPTION = 1.5, 1.5 / 4  # multiplications for each bit of the key
ADDITION, SUBTRACTION = 1.0, 6.0  # multiplications


def server_share(
    encrypted: float, decrypted: float, added: float, key_bits: int, *, subtracts: bool = False
) -> float:
    """Share of the server in a round's multiplications, as paper 001 counts: one client and the server.

    Examples
    --------
    >>> round(server_share(2560.0, 2560.0, 610 * 2560.0, 1024), 3)  # full-text, 2,560 items, 610 clients
    0.241
    >>> round(server_share(2560.0, 2560.0, 610 * 2560.0, 1024, subtracts=True), 3)
    0.656
    """
    client = key_bits * (ENCRYPTION * encrypted + DECRYPTION * decrypted)
    server = added * (SUBTRACTION if subtracts else ADDITION)
    return server / (client + server) if client + server else float("nan")
