"""Chai et al.'s own attack: Eq. (24), two rounds of plaintext gradients, as printed and as corrected.

D. Chai et al., "Secure Federated Matrix Factorization", arXiv:1906.05108, section 4. With G_j = e_j u (the
upload without its constants) the rating of an item is the same in rounds t and t + 1. This leaves an
equation in z = u_k^2 for an item j and a dimension k. Multiplied by u_k it is a quadratic:

    (G_jk (1 - c gamma_j) - z beta_j / G_jk) (S z + c alpha_k) = G'_jk z,
    alpha = 2 sum_n v_n G_n (elementwise), beta_j = (S v'_j - v_j) . G_j,
    gamma_j = sum_m alpha_m v'_jm / G_jm.

The step of the clients is u' = S u + c alpha / u with S = 1 - 2 gamma lambda and c = gamma. As printed, (9),
(15), (16) and (24) have S = 1 and c = 1: the learning rate and the regularisation are missing.

What it assumes: uploads in the clear and without noise, two consecutive rounds, gamma and lambda public,
and the sign and root whose ratings lie nearest to the grid. The paper's attack answers whatever comes out
(``answer="any"``); by default a client is answered where its ratings fit the grid by more than chance
(``attacks.closed_form.fit.goodness_of_fit``), as by the other closed forms.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Float

from attacks.base import Progress, Reconstruction, all_abstain, silent
from attacks.client_rules.premises import unlike
from attacks.closed_form.common_numbers import abstain_if_lowered
from attacks.closed_form.fit.arbiter import abstain_if_contradicted, abstain_if_few_fit
from attacks.closed_form.grid.exact_grid import unless_off
from attacks.closed_form.grid.rank_one import solve_clients
from attacks.closed_form.grid.rating_grid import distance_from_grid, row_numbers
from attacks.closed_form.uploads.reduction import Reduced
from attacks.obstacles import unreadable
from victims.common.validation import one_of, require_fields
from victims.transcript.manifest import Manifest
from victims.transcript.view import Uploads, UserBatch, View

MAX_MISFIT = 0.25  # of chance, as the spectral attack allows
ROOTS = 2  # of the quadratic, of which the grid chooses one


@dataclass(frozen=True)
class Eq24:
    """Hyper-parameters.

    Attributes
    ----------
    form : "printed" or "corrected"
    answer : "judged" or "any"
        "judged" abstains where ratings fit the grid little better than chance; "any" answers whoever has a
        root, as the paper does.
    """

    form: Literal["printed", "corrected"] = "corrected"
    answer: Literal["judged", "any"] = "judged"

    def __post_init__(self) -> None:
        require_fields(self, "eq24", form=one_of("printed", "corrected"), answer=one_of("judged", "any"))

    @property
    def name(self) -> str:
        """The name in the registry and in results."""
        return f"eq24-{self.form}"

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Solve all clients of a view."""
        options = {**asdict(self), "seed": key}
        if obstacle := self.obstacle(view):
            return all_abstain(self.name, view.users, obstacle, options)
        found = solve_clients(
            self.name,
            options,
            view,
            partial(_lengths, self, view.manifest),
            max_misfit=partial(unless_off, MAX_MISFIT if self.answer == "judged" else np.inf, view.manifest),
            no_length="Eq. (24) has no positive root",
            progress=progress,
            tried=ROOTS,
        )
        if self.answer == "any":
            return found
        found = abstain_if_few_fit(found, found.diagnostics["allowed"] <= 0)
        return abstain_if_lowered(abstain_if_contradicted(found, MAX_MISFIT), view)

    def obstacle(self, view: View) -> str:
        """Why Eq. (24) cannot be written down, or nothing."""
        return (
            unreadable(view)
            or _without_equation(view)
            or unlike(view, judges=self.answer == "judged", follows=True)
        )


def _without_equation(view: View) -> str:
    manifest = view.manifest
    if manifest.rule_name == "unknown":
        return "the clients' rule is not declared (rule), and Eq. (24) is about that of sgd alone"
    if manifest.update != "sgd" or manifest.weighting != "observed-only" or manifest.n_attributes:
        return "Eq. (24) is about clients that take gradient steps on their ratings alone"
    if not {"lambda_factors", "client_learning_rate"} <= set(manifest.hyperparameters):
        return "Eq. (24) needs the clients' learning rate and regularisation"
    if not np.any(np.diff(view.rounds) == 1):
        return "Eq. (24) needs two consecutive rounds"
    return ""


def _lengths(
    attack: Eq24, manifest: Manifest, batch: UserBatch, reduced: list[Reduced]
) -> Float[np.ndarray, "rounds users"]:
    """s in the first round of each client's first pair of consecutive rounds with the same items."""
    lengths = np.zeros((len(reduced), batch.users.size))
    for first in range(len(reduced) - 1):
        now, then = batch.rounds[first], batch.rounds[first + 1]
        open_ = now.same_list(then) & (lengths == 0).all(axis=0)
        if then.round == now.round + 1 and open_.any():
            pair = _of_pair(attack, manifest, (now, then), (reduced[first], reduced[first + 1]))
            lengths[first] = np.where(open_, pair, 0)
    return lengths


def _of_pair(
    attack: Eq24, manifest: Manifest, uploads: tuple[Uploads, Uploads], reduced: tuple[Reduced, Reduced]
) -> Float[np.ndarray, " users"]:
    constants = manifest.hyperparameters
    rate = constants["client_learning_rate"]
    shrink, step = 1 - 2 * rate * constants["lambda_factors"], rate
    if attack.form == "printed":
        shrink, step = 1.0, 1.0
    now, then = reduced
    everyone = np.arange(now.energy.size)
    width = min(now.scalar.shape[1], then.scalar.shape[1])
    j = np.where(uploads[0].valid, np.abs(now.scalar), -1)[:, :width].argmax(axis=1)
    k = np.abs(now.direction).argmax(axis=1)
    v, v_next = (
        part.factors[np.broadcast_to(part.at, rows.scalar.shape)[everyone, j]]
        for part, rows in zip(uploads, reduced, strict=True)
    )
    g, d_k = now.scalar[everyone, j], now.direction[everyone, k]
    g_jk = g * d_k
    g_next = then.scalar[everyone, j] * then.direction[everyone, k]
    alpha_k = 2 * d_k * now.pull[everyone, k]
    beta = g * np.einsum("uk,uk->u", shrink * v_next - v, now.direction)
    with np.errstate(divide="ignore", invalid="ignore"):
        gamma = 2 * np.einsum("uk,uk->u", now.pull, v_next) / g
        first, second = g_jk * (1 - step * gamma), beta / g_jk
        a = -second * shrink
        b = first * shrink - second * step * alpha_k - g_next
        c = first * step * alpha_k
        root = np.sqrt(b * b - 4 * a * c)
        larger = -0.5 * (b + np.copysign(root, b))
        candidates = [np.sqrt(z) / np.abs(d_k) for z in (larger / a, c / larger)]
    candidates = [np.where(np.isfinite(s) & (s > 0), s, 0) for s in candidates]
    away = [distance_from_grid(manifest, row_numbers(uploads[0], now), s) for s in candidates]
    return np.where(away[1] < away[0], candidates[1], candidates[0])
