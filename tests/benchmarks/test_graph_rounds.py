"""Rounds of protocols without a server beside their floor and a peer, in one run. Nothing here is asserted.

    python -m pytest -o addopts= --import-mode=importlib -s tests/benchmarks/test_graph_rounds.py

Synthetic ratings of the size of ML-100K, and of a half and a quarter of its users. The floor copies as many
bytes as a round must read and write: the factor of each row and of each user, read and written; each row,
written; each copy of an item's factor that only others move, read and written; the graph, read. The peer is
the product of the graph's weights and a dense table of users by (items x K) with the rows in it, which is all
of the delivery in one line of NumPy or SciPy, and neither the clients' passes nor their steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp

from audit.factories import make_victim
from tests.benchmarks.timing import medians, seconds
from victims.data.ratings import Ratings
from victims.data.synthetic import Synthetic, generate
from victims.protocols.base import Edges, Rows, State, Victim
from victims.protocols.network import joined_rows

USERS, ITEMS, PER_USER = 943, 1682, 106.0  # of ML-100K
NUMBER = 8  # bytes of a float64
SPARSE = 0.1  # share of the pairs of users below which the peer's weights are a sparse matrix
TIMED = 5


@dataclass(frozen=True)
class Protocol:
    """A victim, and whether copies of items that a user did not step on itself are moved in a round.

    PDMFRec keeps sums of what was sent instead (``victims.protocols.pdmfrec_round``).
    """

    name: str
    moves_copies: bool


PROTOCOLS = (Protocol("pdmfrec", False), Protocol("dpmf-yang", True))


@pytest.fixture(scope="module", params=[4, 2, 1], ids=["a quarter", "a half", "all"])
def ratings(request) -> Ratings:
    return generate(Synthetic(users=USERS // request.param, items=ITEMS, ratings_per_user=PER_USER))


def sent_in(victim: Victim[State], state: State, ratings: Ratings) -> tuple[Rows, Edges]:
    """All rows of a round, and who receives whose."""
    rows = joined_rows(list(victim.uploads(state, ratings, np.arange(ratings.n_users))))
    edges = victim.network(state, ratings).edges
    assert edges is not None
    return rows, edges


def table_of(rows: Rows, n_users: int, n_items: int) -> np.ndarray:
    """Whether each user sends a row about each item, of either table."""
    about = np.zeros((n_users, 2 * n_items), np.float32)
    about[rows.sender, rows.index + n_items * (rows.kind != rows.kind.min())] = 1
    return about


def floor_bytes(protocol: Protocol, rows: Rows, edges: Edges, ratings: Ratings) -> int:
    """Bytes that a round reads or writes at least; K numbers in each factor."""
    n_users, factors = ratings.n_users, rows.gradient.shape[1]
    touched = 3 * rows.sender.size + 2 * n_users
    if protocol.moves_copies:
        own = table_of(rows, n_users, ratings.n_items)
        graph = sp.csr_array((np.ones(edges.sender.size, np.float32), (edges.receiver, edges.sender)),
                             shape=(n_users, n_users))  # fmt: skip
        touched += 2 * int(np.count_nonzero((graph @ own > 0) & (own == 0)))
    return NUMBER * (factors * touched + edges.sender.size)


def copying(size: int) -> Callable[[], None]:
    """A copy that reads and writes so many bytes together."""
    source = np.ones(max(size // 2 // NUMBER, 1))
    into = np.zeros_like(source)
    return lambda: np.copyto(into, source)


def one_product(rows: Rows, edges: Edges, ratings: Ratings) -> Callable[[], object]:
    """The sums of what arrives at every user about every item, from a table that is there already."""
    n_users, n_items, factors = ratings.n_users, ratings.n_items, rows.gradient.shape[1]
    tables = []
    for kind in np.unique(rows.kind):
        here = rows.kind == kind
        table = np.zeros((n_users, n_items, factors))
        table[rows.sender[here], rows.index[here]] = rows.gradient[here]
        tables.append(table.reshape(n_users, -1))
    weights = sp.csr_array((edges.weight, (edges.receiver, edges.sender)), shape=(n_users, n_users))
    scarce = edges.sender.size < SPARSE * n_users**2
    product = weights if scarce else weights.toarray()
    return lambda: [product @ table for table in tables]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
def test_round(benchmark, ratings, protocol):
    """One round, the second: the first one finds out who hears of what."""
    victim = make_victim(protocol.name)
    state = victim.round(victim.init(ratings, 0), ratings)
    rows, edges = sent_in(victim, state, ratings)
    size = floor_bytes(protocol, rows, edges, ratings)
    calls = (lambda: victim.round(state, ratings), copying(size), one_product(rows, edges, ratings))
    times: list[list[tuple[float, float]]] = [[] for _ in calls]

    def each():
        for call, found in zip(calls, times, strict=True):
            found.append(seconds(call))

    benchmark.pedantic(each, rounds=TIMED, warmup_rounds=1)
    (wall, cpu), floor, peer = (medians(found[1:]) for found in times)
    n_rows = rows.sender.size
    messages = int(np.bincount(rows.sender, minlength=ratings.n_users)[edges.sender].sum())
    told = {
        "rows": n_rows,
        "messages": messages,
        "floor_bytes": size,
        "over_floor": round(cpu / floor[1], 1),
        "over_peer": round(cpu / peer[1], 2),
    }
    benchmark.extra_info |= told
    print(
        f"\n{protocol.name}, {ratings.n_users} users, K = {rows.gradient.shape[1]}: {n_rows:,} rows", end=""
    )
    print(f" x {wall:.3f} s ({cpu:.3f} s of CPU), {messages:,} messages;", end="")
    print(f" {told['over_floor']} times the floor of {size / 1e6:.1f} MB,", end="")
    print(f" {told['over_peer']} times one matrix product (CPU)")
