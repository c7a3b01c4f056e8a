"""What a round costs where clients send to each other: messages and bytes of the graph, and seconds.

A row goes once along every edge of its sender, as an index and K numbers. Seconds are of the processor for
one simulated round of all clients: their rows, and the steps of all who receive them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

from audit.experiments.row_cost import timed
from victims.common.limits import peak_memory
from victims.training import Run, formed_rows

INDEX_BYTES = 4


@dataclass(frozen=True)
class GraphCost:
    """Of one round."""

    seconds_round: float  # of a whole round, and of forming the rows alone
    seconds_rows: float  # of a whole round, and of forming the rows alone
    rows: int  # rows that are formed, edges of the graph, and rows that arrive
    edges: int  # rows that are formed, edges of the graph, and rows that arrive
    messages: int  # rows that are formed, edges of the graph, and rows that arrive
    bytes: float  # of all messages
    bytes_sent: float  # of the client with most, and of the mean client
    bytes_sent_mean: float  # of the client with most, and of the mean client
    bytes_received: float  # of the client with most, and of the mean client
    bytes_received_mean: float  # of the client with most, and of the mean client
    peak_bytes: float  # largest resident size of this process so far


def graph_cost_of(run: Run) -> GraphCost:
    """Measure one round."""
    n_users = run.ratings.n_users
    rows = partial(_rows_per_client, run)
    rows()  # compiles what is timed
    of_rows, count = timed(rows)
    step = partial(run.trained, 0)
    jax.block_until_ready(step().state)  # compiles what is timed
    of_round, _ = timed(lambda: jax.block_until_ready(step().state))
    edges = run.network.edges
    assert edges is not None
    along = count[edges.sender]
    size = INDEX_BYTES + 8 * run.victim.broadcast(run.state)[0].shape[1]
    sent, received = (
        size * np.bincount(end, along, minlength=n_users) for end in (edges.sender, edges.receiver)
    )
    return GraphCost(
        of_round,
        of_rows,
        int(count.sum()),
        edges.sender.size,
        int(along.sum()),
        float(sent.sum()),
        float(sent.max()),
        float(sent.mean()),
        float(received.max()),
        float(received.mean()),
        float(peak_memory()),
    )


def _rows_per_client(run: Run) -> np.ndarray:
    """Rows that leave each client in a round, before what is done to each message anew."""
    count = np.zeros(run.ratings.n_users, np.int64)
    for some in formed_rows(run, np.arange(count.size), 0):
        count += np.bincount(some.sender, minlength=count.size)
    return count
