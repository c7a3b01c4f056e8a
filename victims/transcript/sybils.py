"""A server together with some of the clients: what it sees is every sum less what these clients sent.

Douceur 2002 named the Sybil attack: whoever need not prove who they are has as many identities as they want.
Here the server has, or real clients collude with it; what they know is the same. Of a sum it knows its own
summands. Where uploads are added up under masks (``secure-sum``), ``less`` subtracts those, and where one
honest client is left, ``lone`` makes its rows of the rest. A key that all clients have (``paillier``) is the
adversary's with its first client. Secure aggregation (Bonawitz et al. 2017, doi:10.1145/3133956.3133982)
hides all but the sum over the honest clients: how many these are is an assumption of it, and no result.

- ``sybils:0.9``: a random 0.9 of the recorded clients collude, at least one does not; larger shares have all
  of the smaller ones' clients in them. ``sybils:0.9:3`` is another draw, number 3.
- ``sybils:943-947``: the recorded clients 943 to 947, both included, as those that ``--sybils 5`` registered.
- ``sybils:all-but-one``: every recorded client in turn is the one honest client of a sum, among registered
  clients that send rows of zeros about whatever it sends. They are not recorded: they change no sum.

J. R. Douceur, *The Sybil Attack*, IPTPS 2002, doi:10.1007/3-540-45748-8_24.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.transcript.messages import Messages, Sums

SYBILS = "sybils:"
DRAWN = re.compile(r"(0|1(?:\.0{1,9})?|0?\.[0-9]{1,9})(?::([0-9]{1,9}))?")
NAMED = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


class Sybils(NamedTuple):
    """Which clients are the adversary's."""

    share: float = 0.0  # of the recorded clients, drawn at random
    draw: int = 0
    first: int = -1  # of clients by number, in place of a share
    last: int = -1

    def among(self, n_users: int) -> Int[np.ndarray, " clients"]:
        """Their numbers, ascending; one client at least is not among them."""
        if self.first >= 0:
            if self.last >= n_users or self.last - self.first + 1 >= n_users:
                raise InputError(
                    f"adversary {SYBILS}{self.first}-{self.last} must name clients below {n_users}, and not "
                    "all of them; name fewer"
                )
            return np.arange(self.first, self.last + 1)
        count = min(round(self.share * n_users), n_users - 1)
        order = generator(self.draw, Purpose.COLLUDING_CLIENTS).permutation(n_users)
        return np.sort(order[:count])


def sybils_of(adversary: str) -> Sybils | None:
    """Read an adversary's name; None where every client is attacked in turn, alone among Sybils.

    Examples
    --------
    >>> sybils_of("sybils:0.5").among(4).size, sybils_of("sybils:2-3").among(4).tolist()
    (2, [2, 3])
    """
    told = adversary.removeprefix(SYBILS)
    if told == "all-but-one":
        return None
    if drawn := DRAWN.fullmatch(told):
        return Sybils(float(drawn[1]), int(drawn[2] or 0))
    named = NAMED.fullmatch(told)
    if named and int(named[1]) <= int(named[2]):
        return Sybils(first=int(named[1]), last=int(named[2]))
    raise InputError(
        f"adversary {SYBILS} must go on with a share of the clients from 0 to 1, with FIRST-LAST or with "
        f"all-but-one, got {adversary!r:.80}; write sybils:0.9"
    )


def less(sums: Mapping[int, Sums], own: Messages) -> dict[int, Sums]:
    """Sums by round, without what the adversary's clients contributed."""
    found = {round_: replace(one, values=one.values.copy()) for round_, one in sums.items()}
    for chunk, gradient in enumerate(own.gradient or ()):
        columns = (own.round[chunk], own.kind[chunk], own.index[chunk])
        for round_, rest in found.items():
            here = np.flatnonzero(columns[0] == round_)
            at = _places(rest, columns[1][here], columns[2][here])
            np.subtract.at(rest.values, at[at >= 0], gradient[here[at >= 0]])
    return found


def lone(honest: Messages, sums: Mapping[int, Sums]) -> Messages:
    """The rows of the one honest client: what is left of the sums that were opened."""
    width = next(iter(sums.values())).values.shape[1] if sums else 0
    keep, values = [], []
    for chunk, round_ in enumerate(honest.round):
        place, rows = np.full(round_.size, -1), np.zeros((round_.size, width))
        for number, rest in sums.items():
            here = np.flatnonzero(round_ == number)
            place[here] = _places(rest, honest.kind[chunk][here], honest.index[chunk][here])
            rows[here] = rest.values[place[here]]
        keep.append(place >= 0)
        values.append(rows)
    return replace(honest, gradient=tuple(values)).rows(keep)


def _places(sums: Sums, kind: Int[np.ndarray, " rows"], index: Int[np.ndarray, " rows"]) -> np.ndarray:
    """Where the sum about each row is; -1 where there is none."""
    width = int(max(sums.index.max(initial=0), index.max(initial=0))) + 1
    table = np.full(2 * width, -1)
    table[sums.kind.astype(np.int64) * width + sums.index] = np.arange(sums.index.size)
    return table[kind.astype(np.int64) * width + index]
