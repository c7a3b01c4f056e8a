"""IMIA: which items of an upload are positives, by training simulated clients on supposed labels.

W. Yuan, C. Yang, Q. V. H. Nguyen, L. Cui, T. He, H. Yin, "Interaction-level Membership Inference Attack
Against Federated Recommender Systems", WWW 2023, pp. 1053-1062, arXiv:2301.10964, restated for F-NCF and
F-LightGCN from the authors' program (github.com/hi-weiyuan/FedRec_IMIA).

The server knows V and the network that it broadcast, the local rule, and gamma, the share of positives of a
client's items. It supposes labels at random, gamma of them positive, trains as the client would, from a user
embedding of its own, and compares each simulated row with the uploaded one: labels of the nearest rows, a
share lambda of all, are confirmed, and the rest is supposed again, until there are enough positives.

Beyond the paper, against its defense: with gamma alone, and no client simulated, rows are ranked along the
first singular direction of a client's upload, where positives and negatives lie apart however near all rows
are to the broadcast ones. The minority is skewed away from the rest, which tells the sign.

Gradients are set to 0 between steps, which the program's simulation leaves out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

from attacks.base import Estimates, Progress, Reconstruction, Scope, all_abstain, silent
from attacks.obstacles import unreadable
from victims.common.seeds import Purpose, generator
from victims.common.validation import one_of, or_none, require_fields, strictly_between
from victims.transcript.view import ITEM, Uploads, View

MOST_SAMPLES = 1 << 17  # rows of clients that are simulated together
MOST_LAYERS = 8  # hidden ones
NO_SHARE = "the share of positives is not known: the recording declares no negatives; set positive_share"
UNDECLARED = (
    "imia simulates clients of F-NCF or F-LightGCN, and the recording declares no scorer or network of these"
)
OTHER_NETWORK = (
    "a network of {} hidden layers, as declared, has {} rows, and {} were broadcast: the declaration is not "
    "that of this recording; correct hidden_layers"
)


class Known(NamedTuple):
    """What the server knows of local training."""

    lightgcn: bool
    layers: int
    passes: int
    batch: int
    rate: float
    proximal: float


def layer_sizes(factors: int, layers: int) -> list[tuple[int, int]]:
    """Inputs and units of each layer: hidden ones of K, K / 2, ... units, and one output.

    Examples
    --------
    >>> layer_sizes(16, 2)
    [(32, 16), (16, 8), (8, 1)]
    """
    widths = [2 * factors, *(max(factors >> number, 1) for number in range(layers)), 1]
    return list(pairwise(widths))


def forward(layers: int, network: Array, user: Array, items: Array) -> Float[Array, " n"]:
    """Logits of a network, of each layer its weights, then its biases."""
    hidden = jnp.concatenate([jnp.broadcast_to(user, items.shape), items], axis=1)
    for n_in, n_out in layer_sizes(items.shape[1], layers):
        weight, bias, network = jnp.split(network, [n_in * n_out, (n_in + 1) * n_out])
        out = hidden @ weight.reshape(n_in, n_out) + bias
        hidden = jnp.maximum(out, 0)
    return out[:, 0]


def cross_entropy(known: Known, client: tuple, before: Array, y: Array, real: Array, at: Array) -> Array:
    """Mean of a minibatch, on the client's star graph of supposed positives where there is one."""
    user, items, network = client
    anchor = known.proximal * jnp.sum((items - before) ** 2)
    if known.lightgcn:
        edge = y * real / jnp.sqrt(jnp.maximum(jnp.sum(y * real), 1))
        user, items = (user + edge @ items) / 2, (items + jnp.outer(edge, user)) / 2
    score = forward(known.layers, network, user, items[at])
    each = jax.nn.softplus(score) - y[at] * score
    return jnp.sum(real[at] * each) / jnp.maximum(jnp.sum(real[at]), 1) + anchor


@partial(jax.jit, static_argnums=0)
@partial(jax.vmap, in_axes=(None, 0, 0, None, 0, 0, 0))
def simulate(
    known: Known, user: Array, before: Array, network: Array, y: Array, real: Array, key: Array
) -> Float[Array, "samples K"]:
    """The change of the rows of clients that train on supposed labels ``y``."""
    adam, slope = optax.adam(known.rate), jax.grad(cross_entropy, argnums=1)

    def step(carried: tuple, at: Array) -> tuple[tuple, None]:
        client, memory = carried
        change, memory = adam.update(slope(known, client, before, y, real, at), memory)
        new = optax.apply_updates(client, change), memory
        return jax.tree.map(lambda a, b: jnp.where(real[at].any(), a, b), new, carried), None

    def one_pass(carried: tuple, key: Array) -> tuple[tuple, None]:
        order = jnp.argsort(jnp.where(real > 0, jax.random.uniform(key, real.shape), 2.0))
        return jax.lax.scan(step, carried, order.reshape(-1, known.batch))

    start = (user, before, network), adam.init((user, before, network))
    ((_, after, _), _), _ = jax.lax.scan(one_pass, start, jax.random.split(key, known.passes))
    return after - before


@dataclass(frozen=True)
class IMIA:
    """Hyper-parameters.

    It is passive, and assumes uploads in the clear of a victim that declares its scorer, its network and the
    number of negatives. It answers about the first round in which a client is seen.

    Attributes
    ----------
    positive_share : float or None
        gamma, in 0..1, exclusive; None is 1 / (1 + negatives) as declared.
    compare : "simulation" or "direction"
        How rows are told apart: by simulated clients, or by their place along the client's first singular
        direction, which asks for gamma < 1/2 alone.
    confirmed_share : float
        lambda, in 0..1, exclusive: labels that are confirmed in each repetition. The program has 0.9.

    References
    ----------
    Yuan et al., WWW 2023, arXiv:2301.10964.
    """

    positive_share: float | None = None
    confirmed_share: float = 0.1
    compare: Literal["simulation", "direction"] = "simulation"
    name: str = "imia"

    def __post_init__(self) -> None:
        share = strictly_between(0, 1)
        ways = one_of("simulation", "direction")
        require_fields(self, "imia", positive_share=or_none(share), confirmed_share=share, compare=ways)

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Simulate all clients of a view."""
        options = {**asdict(self), "seed": key}
        if obstacle := self.obstacle(view):
            return all_abstain(self.name, view.users, obstacle, options, scope=Scope.RATED_SET)
        blocks, done = [], 0
        for batch in view.batches(MOST_SAMPLES * view.manifest.factors * 8):
            left = np.ones(batch.users.size, bool)
            for uploads in batch.rounds:
                here = np.broadcast_to(uploads.valid & (uploads.kind == ITEM), uploads.gradients.shape[:2])
                users = np.flatnonzero(left & here.any(axis=1))
                if users.size:
                    blocks.append(self._block(view, batch.users[users], uploads, users, here[users], key))
                    left[users] = False
            done += batch.users.size
            progress(done, view.users.size)
        return Reconstruction(self.name, view.users, tuple(blocks), {}, options, scope=Scope.RATED_SET)

    def obstacle(self, view: View) -> str:
        """Why clients cannot be simulated, or nothing."""
        said, told = view.manifest.rule.model_extra or {}, view.told.get("network")
        if self.compare == "direction":
            return unreadable(view) or (
                "" if self.positive_share or view.manifest.draws_negatives else NO_SHARE
            )
        layers, negatives = said.get("hidden_layers"), said.get("negatives")
        if unread := unreadable(view):
            return unread
        known = (
            said.get("scorer") in ("ncf", "lightgcn")
            and "client_learning_rate" in view.manifest.hyperparameters
        )
        known &= isinstance(negatives, int | float) and negatives > 0
        if not (known and told is not None and isinstance(layers, int) and 1 <= layers <= MOST_LAYERS):
            return UNDECLARED
        factors, of_server = view.manifest.factors, told.round[told.sender < 0]
        wanted = -(-sum((n_in + 1) * n_out for n_in, n_out in layer_sizes(factors, layers)) // factors)
        sent = int((of_server == of_server[:1]).sum())
        return "" if sent == wanted else OTHER_NETWORK.format(layers, wanted, sent) if sent else UNDECLARED

    def _block(
        self,
        view: View,
        clients: np.ndarray,
        uploads: Uploads,
        users: np.ndarray,
        here: Bool[np.ndarray, "users rows"],
        key: int,
    ) -> Estimates:
        """Positives of some clients in a round."""
        said = view.manifest.rule.model_extra or {}
        gamma = self.positive_share or 1 / (1 + said["negatives"])
        if self.compare == "direction":
            positive = ranked(uploads.gradients[users] * here[..., None], here, gamma)
        else:
            positive = self._simulated(view, uploads, users, here, gamma, key)
        index = uploads.index if len(uploads.index) == 1 else uploads.index[users]
        value = np.where(here, np.where(positive, view.manifest.rating_levels[0], 0.0), np.nan)
        return Estimates(clients, np.full((1, here.shape[1]), ITEM, np.int8), index, value)

    def _simulated(
        self,
        view: View,
        uploads: Uploads,
        users: np.ndarray,
        here: Bool[np.ndarray, "users rows"],
        gamma: float,
        key: int,
    ) -> Bool[np.ndarray, "users rows"]:
        """Positives by labels under which simulated rows are those that were sent."""
        rule, told = view.manifest.rule, view.told["network"]
        said, width = rule.model_extra or {}, here.shape[1]
        size = width if rule.batch_size in ("all", None) else min(rule.batch_size, width)
        known = Known(
            said["scorer"] == "lightgcn", said["hidden_layers"], rule.local_steps or 1, size,
            view.manifest.hyperparameters["client_learning_rate"], said.get("proximal", 0.0),
        )  # fmt: skip
        sent = (told.round == uploads.round) & (told.sender < 0)
        network = told.numbers[sent].ravel().astype(np.float32)
        pad = ((0, 0), (0, -width % size))
        real = np.pad(here, pad)
        at = np.broadcast_to(uploads.at, here.shape) if len(uploads.at) == 1 else uploads.at[users]
        before = np.pad(uploads.factors[at].astype(np.float32), (*pad, (0, 0)))
        change = np.pad(uploads.gradients[users], (*pad, (0, 0)))
        rng = generator(key, Purpose.SUPPOSED_LABELS, uploads.round, int(users[0]), width)
        scale = float(before.std(where=real[..., None]))
        own = rng.normal(0, scale, (users.size, before.shape[2])).astype(np.float32)

        def distance(label: Bool[np.ndarray, "users rows"]) -> Float[np.ndarray, "users rows"]:
            keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), users.size)
            y = label.astype(np.float32)
            found = simulate(known, own, before, network, y, real.astype(np.float32), keys)
            return np.linalg.norm(np.asarray(found) - change, axis=2)

        return confirm(distance, real, gamma, self.confirmed_share, rng)[:, :width]


def ranked(
    change: Float[np.ndarray, "users rows K"], real: Bool[np.ndarray, "users rows"], gamma: float
) -> Bool[np.ndarray, "users rows"]:
    """The share gamma of each client's rows at the skewed end of their first singular direction.

    Examples
    --------
    >>> rows = np.array([[[-2.0, 0.1], [-2.1, 0.0], [2.5, 0.1], [-1.9, -0.2], [-2.2, 0.1]]])
    >>> ranked(rows, np.ones((1, 5), bool), 0.2).tolist()
    [[False, False, True, False, False]]
    """
    n_rows = real.sum(axis=1, keepdims=True)
    largest = np.maximum(np.abs(change).max(axis=(1, 2), keepdims=True), np.finfo(float).tiny)
    scaled = change / largest
    direction = np.linalg.eigh(np.swapaxes(scaled, 1, 2) @ scaled)[1][:, :, -1]
    along = np.einsum("unk,uk->un", scaled, direction)
    centred = np.where(real, along - along.sum(axis=1, keepdims=True) / n_rows, 0.0)
    signed = np.where(real, centred * np.where((centred**3).sum(axis=1, keepdims=True) < 0, -1, 1), -np.inf)
    return np.argsort(np.argsort(-signed, axis=1), axis=1) < np.maximum(np.rint(gamma * n_rows), 1)


def confirm(
    distance: Callable[[np.ndarray], np.ndarray],
    real: Bool[np.ndarray, "users rows"],
    gamma: float,
    share: float,
    rng: np.random.Generator,
) -> Bool[np.ndarray, "users rows"]:
    """Suppose labels and confirm those of the nearest rows, until each client has its positives."""
    n_rows = real.sum(axis=1)
    wanted, step = np.maximum(np.rint(gamma * n_rows), 1), np.maximum(np.ceil(share * n_rows), 1)
    positive, open_ = np.zeros_like(real), real.copy()
    while open_.any():
        lacking = wanted - positive.sum(axis=1)
        drawn = np.argsort(np.argsort(np.where(open_, rng.random(real.shape), 2.0), axis=1), axis=1)
        label = positive | (open_ & (drawn < lacking[:, None]))
        near = np.argsort(np.argsort(np.where(open_, distance(label), np.inf), axis=1), axis=1)
        confirmed = open_ & (near < step[:, None])
        positive |= confirmed & label
        open_ &= ~confirmed & (positive.sum(axis=1) < wanted)[:, None]
    return positive
