"""The table of protocols whose clients keep their factor: the steps of client and server, from the papers.

Every client step is p <- P(shrink p + pull sum_j w_j (s_j - p . t_j) t_j), and every server step moves the
item factors against the sum of the uploads:

- FedMVMF, sgd (Mai & Pang 2022, Eq. 9, 10) and FedMF (Chai et al. 2021, Eq. 2): shrink = 1 - 2 gamma lambda,
  pull = 2 gamma, t_j as broadcast before the uploads, w = lambda_1 for attributes, no projection. The server
  of FedMF subtracts the sum; that of FedMVMF steps by Adam;
- MF on the unit ball (Hu & Fang 2023, Algorithm 1): shrink = 1 - 2 eta lambda, pull = 2 eta, t_j as broadcast
  after the server's step, P the projection to the unit ball; eta is divided by 5 after a quarter and after
  three quarters of the epochs. The server steps by eta, and adds 2 lambda v_j to the sum. So it is where the
  manifest has ``step_regularization``; ``regularization`` counts with every rating: shrink = 1 - 2 eta lambda
  n for n ratings, and the server adds 2 lambda v_j to every row.

References
----------
P. Mai, Y. Pang, "PrivMVMF: Privacy-Preserving Multi-View Matrix Factorization for Recommender
Systems", arXiv:2210.07775. D. Chai et al., "Secure Federated Matrix Factorization",
arXiv:1906.05108. W. Hu, H. Fang, "Decentralized Matrix Factorization with Heterogeneous
Differential Privacy", arXiv:2212.00306.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from victims.transcript.manifest import Manifest

DROP, DROPS = 5.0, (0.25, 0.75)  # of eta in Hu & Fang 2023: divisor, and after which shares of the epochs

Constants = tuple[str | tuple[str, ...], ...]
Rates = Callable[[Manifest, Int[np.ndarray, " T"]], Float[np.ndarray, " T"]]
Shrinks = Callable[
    [Manifest, Float[np.ndarray, " T"], Int[np.ndarray, " users"]], Float[np.ndarray, "users T"]
]


@dataclass(frozen=True)
class ClientRule:
    """The gradient step of one protocol's clients."""

    # hyper-parameters of the manifest that the step needs, beside ``lambda_attributes`` where there are
    # attributes; of a tuple one
    constants: Constants
    learning_rate: Rates  # from the manifest and rounds (T,) to gamma or eta, (T,)
    # from the manifest, learning rates (T,) and numbers of rated items (users,) to what multiplies p, (users,
    # T)
    shrink: Shrinks
    unit_ball: bool = False  # the new factor is projected to the unit ball
    after_server: bool = False  # the step uses the factors that are broadcast after the server's step


@dataclass(frozen=True)
class ServerRule:
    """How one protocol's server moves the item factors."""

    constants: Constants = ()  # hyper-parameters of the manifest that the step needs; of a tuple one
    # whether it is a step of Adam, whose constants the manifest names; else of plain gradient descent
    adam: bool = False
    # from the manifest and rounds (T,) to (T,); of plain gradient descent
    learning_rate: Rates = lambda _, rounds: np.ones(rounds.shape)
    # from the manifest to what the server adds to each contributor's row, and to their sum, as a multiple of
    # the factor
    pull: Callable[[Manifest], float] = lambda _: 0.0
    # from the manifest to what the server adds to each contributor's row, and to their sum, as a multiple of
    # the factor
    once: Callable[[Manifest], float] = lambda _: 0.0


def _constant_rate(manifest: Manifest, rounds: Int[np.ndarray, " T"]) -> Float[np.ndarray, " T"]:
    return np.full(rounds.size, manifest.hyperparameters["client_learning_rate"])


def _dropping_rate(manifest: Manifest, rounds: Int[np.ndarray, " T"]) -> Float[np.ndarray, " T"]:
    """eta of Hu & Fang 2023; its recommender and its clients step with the same."""
    constants = manifest.hyperparameters
    passed = sum((rounds >= share * constants["epochs"]).astype(int) for share in DROPS)
    return np.asarray(constants["learning_rate"] / DROP**passed)


def _shrink_once(
    manifest: Manifest, rate: Float[np.ndarray, " T"], n_rated: Int[np.ndarray, " users"]
) -> Float[np.ndarray, "users T"]:
    shrink = 1 - 2 * rate * manifest.hyperparameters["lambda_factors"]
    return np.broadcast_to(shrink, (n_rated.size, rate.size))


def _shrink_on_the_ball(
    manifest: Manifest, rate: Float[np.ndarray, " T"], n_rated: Int[np.ndarray, " users"]
) -> Float[np.ndarray, "users T"]:
    """Once per step, or with every rating."""
    known = manifest.hyperparameters
    each, once = (known.get(name, 0.0) for name in RIDGES)
    return 1 - 2 * rate * (each * n_rated[:, None] + once)


def _twice(name: str) -> Callable[[Manifest], float]:
    return lambda manifest: 2 * manifest.hyperparameters.get(name, 0.0)


_PLAIN_CLIENT = ClientRule(("client_learning_rate", "lambda_factors"), _constant_rate, _shrink_once)
RIDGES = ("regularization", "step_regularization")  # of Hu & Fang 2023: with every rating, or once per step
_UNIT_BALL: Constants = ("learning_rate", "epochs", RIDGES)
_UNIT_BALL_CLIENT = ClientRule(
    _UNIT_BALL, _dropping_rate, _shrink_on_the_ball, unit_ball=True, after_server=True
)
CLIENT_RULES = {"fedmf": _PLAIN_CLIENT, "fedmvmf": _PLAIN_CLIENT, "mf": _UNIT_BALL_CLIENT}
# by the name that a recording of version 2 declares
DECLARED_RULES = {"sgd": _PLAIN_CLIENT, "projected-sgd": _UNIT_BALL_CLIENT}
SERVER_RULES = {
    "fedmf": ServerRule(),
    "fedmvmf": ServerRule(
        ("server_learning_rate", "adam_epsilon", "lambda_attributes", "lambda_factors"), adam=True
    ),
    "mf": ServerRule(
        _UNIT_BALL, learning_rate=_dropping_rate, pull=_twice(RIDGES[0]), once=_twice(RIDGES[1])
    ),
}


def not_public(manifest: Manifest, constants: Constants) -> str:
    """Say which of some constants the manifest lacks."""
    asked = [(names,) if isinstance(names, str) else names for names in constants]
    missing = [" or ".join(names) for names in asked if not {*names} & {*manifest.hyperparameters}]
    return f"{' and '.join(missing)} are not public" if missing else ""
