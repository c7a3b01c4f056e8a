"""A bias of the client that moves with its factor after every rating or minibatch, and that nothing shrinks.

It starts from a number C that nobody told and moves by what the errors before sum to, as u moves by what they
push it along (``attacks.closed_form.chains.chain_readings``):

    r_j = A g_j + B (h_j + s sum_{a < b} G_a) + C + b_j,

s the sign of sigma. Where it shrinks at each step, C tells ratings from shifted ones and this is not needed;
where nothing does, C takes up any shift of the ratings: what is read is what one step with such a bias tells.
"""

from __future__ import annotations

import numpy as np

from attacks.closed_form.chains.chain_readings import batch_sizes, own_bias
from attacks.closed_form.rows.row_readings import LONGEST, several_steps
from attacks.closed_form.uploads.fitted_chain import chain_of
from attacks.closed_form.uploads.readings import Numbers, Rows

UNSHRUNK = 1e-6  # from 1, by which what multiplies the factor, and the bias with it, may differ


def with_moving_bias(rows: Rows) -> list[Numbers]:
    """Read rows as steps of a factor and of a bias beside it, sums over minibatches or means."""
    if not 0 < rows.rows.shape[1] <= LONGEST:
        return []
    chain, sums = chain_of(rows), several_steps(rows)
    several = sums.whole & (chain.n_steps > 1) & (np.abs(chain.shrink - 1) <= UNSHRUNK)
    if not several.any():
        return []
    sums = sums._replace(along=sums.along + own_bias(chain)[0], whole=several)
    size = batch_sizes(chain.step)
    means = sums._replace(scalar=sums.scalar * size, whole=several & (size > 1).any(axis=1))
    return [one for one in (sums, means) if one.whole.any()]
