"""The systems of single clients in the form that ``scipy.optimize.root`` takes, counting evaluations.

Equation numbers are those of Mai & Pang 2022, section 4 (``attacks.root_finding.systems``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.sparse.linalg import LinearOperator, lgmres

from attacks.closed_form.fit.decoding import looks_unrated
from attacks.root_finding import systems
from victims.transcript.manifest import Manifest
from victims.transcript.view import ATTRIBUTE, ITEM, Uploads, View

SMALLEST_PADDING = 64  # rows; sizes are padded to this times a power of two, so that few are compiled


@dataclass(frozen=True)
class ClientRows:
    """One client's rows of one round, without padding, scale and regularisation."""

    kind: np.ndarray
    index: np.ndarray
    rows: Float[np.ndarray, "rows K"]  # f = c (z - p . t) p
    factors: Float[np.ndarray, "rows K"]  # the broadcast factors t

    def __repr__(self) -> str:
        """One line: of how many rows."""
        return f"ClientRows(rows={self.index.size})"


@dataclass(frozen=True)
class ClientUploads:
    """One client, and its rows of the last round (semi-als), or of the last two consecutive ones (sgd)."""

    user: int
    rounds: tuple[ClientRows, ...]
    first: int  # number of the first of these rounds


def clients_of(view: View) -> Iterator[ClientUploads]:
    """Iterate over the clients of a view, in the order of its batches."""
    wanted = [view.rounds.size - 1]
    if view.manifest.update == "sgd":
        first = int(np.flatnonzero(np.diff(view.rounds) == 1)[-1])
        wanted = [first, first + 1]
    for batch in view.batches():
        for row, user in enumerate(batch.users):
            rounds = tuple(_rows_of(batch.rounds[t], row, view.manifest) for t in wanted)
            yield ClientUploads(int(user), rounds, int(view.rounds[wanted[0]]))


def _rows_of(uploads: Uploads, row: int, manifest: Manifest) -> ClientRows:
    def of_client(column: np.ndarray) -> np.ndarray:
        return column[0 if column.shape[0] == 1 else row]

    valid = of_client(uploads.valid)
    factors = uploads.factors[of_client(uploads.at)[valid]]
    rows = uploads.gradients[row][valid].astype(np.float64)
    rows = (rows - manifest.upload.regularization * factors) / manifest.upload.scale
    return ClientRows(of_client(uploads.kind)[valid], of_client(uploads.index)[valid], rows, factors)


class BudgetExhaustedError(Exception):
    """The budget of evaluations is spent."""


class Evaluations:
    """A count of evaluations against a budget, the last point, and the linear solve of krylov."""

    def __init__(self, start: np.ndarray, budget: int) -> None:
        self.start = start
        self.last_point = start
        self.budget = budget
        self.count = 0

    def spend(self) -> None:
        """Count one evaluation."""
        if self.count >= self.budget:
            raise BudgetExhaustedError
        self.count += 1

    def inner_solve(
        self, product: Callable[[np.ndarray, np.ndarray], np.ndarray], right: np.ndarray, **given: Any
    ) -> tuple[np.ndarray, int]:
        """Solve J dx = right by LGMRES with exact products ``product(point, direction)``.

        The last evaluated point is the point of linearisation: SciPy's line search ends with the
        accepted one.
        """
        point = self.last_point

        def counted(direction: np.ndarray) -> np.ndarray:
            self.spend()
            return product(point, np.ravel(direction))

        operator = LinearOperator((right.size, right.size), matvec=counted, dtype=np.float64)
        wanted = {name: given[name] for name in ("rtol", "maxiter") if name in given}
        return lgmres(operator, right, **wanted)


@runtime_checkable
class Problem(Protocol):
    """What ``scipy.optimize.root`` needs of one client."""

    evaluations: Evaluations

    def residual(self, unknown: np.ndarray) -> np.ndarray:
        """Evaluate the equations."""
        ...

    def jacobian(self, unknown: np.ndarray) -> np.ndarray:
        """Evaluate the dense Jacobian."""
        ...

    def product(self, point: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """Multiply the Jacobian at a point by a direction."""
        ...

    def read(self, solution: np.ndarray) -> np.ndarray:
        """Turn a solution into ratings and attributes, one per row of the client."""
        ...

    def factor(self, solution: np.ndarray) -> np.ndarray:
        """Turn a solution into the client's factor p, with its sign."""
        ...


class SemiAlsProblem:
    """The system (20) or (24) of one client: SciPy sees its own size, JAX a padded one."""

    def __init__(
        self,
        manifest: Manifest,
        last: ClientRows,
        n: int,
        *,
        start_rating: float,
        start_attribute: float,
        budget: int,
        printed: bool = False,
    ) -> None:
        self.size = last.kind.size
        padded = SMALLEST_PADDING << max(0, int(np.ceil(np.log2(self.size / SMALLEST_PADDING))))
        constants = manifest.hyperparameters
        is_item = last.kind == ITEM
        weight = np.where(is_item, 1.0, constants.get("lambda_attributes", 1.0))
        self.padding = padded - self.size
        self.system = systems.SemiAls(
            factors=jnp.asarray(np.pad(last.factors, ((0, self.padding), (0, 0)))),
            weight=jnp.asarray(self._pad(weight)),
            item=jnp.asarray(self._pad(is_item)),
            column=jnp.asarray(self._pad(last.rows[:, n])),
            n=jnp.asarray(np.eye(manifest.factors)[n]),
            ridge=jnp.asarray(constants["lambda_factors"], jnp.float64),
            alpha=jnp.asarray(_alpha(manifest, printed), jnp.float64),
        )
        self.evaluations = Evaluations(np.where(is_item, start_rating, start_attribute), budget)

    def _pad(self, values: np.ndarray) -> np.ndarray:
        return np.pad(values, (0, self.padding))

    def residual(self, unknown: np.ndarray) -> np.ndarray:
        """Evaluate the equations, (n_rows,)."""
        self.evaluations.spend()
        self.evaluations.last_point = unknown
        return np.asarray(systems.residual(systems.semi_als, self._pad(unknown), self.system))[: self.size]

    def jacobian(self, unknown: np.ndarray) -> np.ndarray:
        """Evaluate the dense Jacobian, (n_rows, n_rows)."""
        matrix = systems.jacobian(systems.semi_als, self._pad(unknown), self.system)
        return np.asarray(matrix)[: self.size, : self.size]

    def product(self, point: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """Multiply the Jacobian at a point by a direction, (n_rows,)."""
        out = systems.jacobian_product(systems.semi_als, self._pad(point), self._pad(direction), self.system)
        return np.asarray(out)[: self.size]

    def read(self, solution: np.ndarray) -> np.ndarray:
        """Return the unknowns, which are the ratings and attributes."""
        return solution

    def factor(self, solution: np.ndarray) -> np.ndarray:
        """Solve (8), (K,): p of the round of the uploads."""
        return np.asarray(systems.factor_of(self._pad(solution), self.system))


class SgdProblem:
    """The system (31) or (33) of one client: K unknowns."""

    def __init__(
        self,
        manifest: Manifest,
        rounds: tuple[ClientRows, ...],
        j: int,
        *,
        start_factor: float,
        start_along: str,
        budget: int,
        printed: bool = False,
    ) -> None:
        self.before, after = rounds
        differs = printed and manifest.weighting == "include-unrated"
        self.equations = systems.sgd_printed if differs else systems.sgd
        self.manifest = manifest
        constants = manifest.hyperparameters
        weight = np.where(self.before.kind == ATTRIBUTE, constants.get("lambda_attributes", 1.0), 1.0)
        self.system = systems.Sgd(
            before=jnp.asarray(self.before.rows[j]),
            after=jnp.asarray(after.rows[j]),
            q_before=jnp.asarray(self.before.factors[j]),
            q_after=jnp.asarray(after.factors[j]),
            pull=jnp.asarray(self.before.rows.T @ (weight[:, None] * self.before.factors)),
            rate=jnp.asarray(constants["client_learning_rate"], jnp.float64),
            ridge=jnp.asarray(constants["lambda_factors"], jnp.float64),
            alpha=jnp.asarray(_alpha(manifest, printed), jnp.float64),
        )
        start = np.full(manifest.factors, start_factor)
        if start_along == "row":
            row = self.before.rows[j]
            norm = np.linalg.norm(row)
            start = start * np.sqrt(row.size) * row / (norm if norm > 0 else 1.0)
        self.evaluations = Evaluations(start, budget)

    def residual(self, unknown: np.ndarray) -> np.ndarray:
        """Evaluate the equations, (K,)."""
        self.evaluations.spend()
        self.evaluations.last_point = unknown
        return np.asarray(systems.residual(self.equations, unknown, self.system))

    def jacobian(self, unknown: np.ndarray) -> np.ndarray:
        """Evaluate the dense Jacobian, (K, K)."""
        return np.asarray(systems.jacobian(self.equations, unknown, self.system))

    def product(self, point: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """Multiply the Jacobian at a point by a direction, (K,)."""
        return np.asarray(systems.jacobian_product(self.equations, point, direction, self.system))

    def read(self, solution: np.ndarray) -> np.ndarray:
        """Read ratings and attributes by (32), with the whole vector p instead of one coordinate.

        In include-unrated the weight of each row is decided first.
        """
        error, predicted, sign = self._signed(solution)
        if self.manifest.weighting == "observed-only":
            return sign * (error + predicted)
        alpha = self.manifest.hyperparameters["alpha"]
        levels = np.array(self.manifest.rating_levels)
        unrated = looks_unrated(sign * error, sign * predicted, levels, alpha) & (self.before.kind == ITEM)
        return np.where(unrated, 0.0, sign * (error + predicted))

    def factor(self, solution: np.ndarray) -> np.ndarray:
        """The unknowns, (K,): p of the earlier of the two rounds."""
        return self._signed(solution)[2] * solution

    def _signed(self, solution: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Errors and predictions of all rows, and the sign that makes ratings positive: -p solves alike."""
        error = self.before.rows @ solution / (solution @ solution)
        predicted = self.before.factors @ solution
        strength = np.ones_like(error)
        if self.manifest.weighting == "include-unrated":
            strength = np.abs(error + self.manifest.hyperparameters["alpha"] * predicted)
        items = self.before.kind == ITEM
        positive = (strength * (error + predicted))[items].sum() >= 0
        return error, predicted, 1.0 if positive else -1.0


def _alpha(manifest: Manifest, printed: bool) -> float:
    """Weight at which the smoothing starts: alpha, or 0 in (42) as printed; 1 where it is not needed."""
    if manifest.weighting != "include-unrated":
        return 1.0
    return 0.0 if printed else manifest.hyperparameters["alpha"]
