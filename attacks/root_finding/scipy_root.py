"""The paper's attack: the non-linear systems of section 4 solved by ``scipy.optimize.root``.

Paper 000, sections 4 and 6.2, Tables 3 and 6. One attack per SciPy method, client by client, in
parallel processes. "Scalar Jacobian approximation" in Table 6 is SciPy's wording for ``linearmixing``,
while the citation is the method of ``df-sane``: both are here under their SciPy names.

What it assumes: uploads in the clear, all public constants of the update, the manifest's weighting. The
start decides how well the solvers do, so it is an option and is recorded. A solver that fails is data: its
last iterate is still the answer (as in the paper), ``converged`` says 0, and a client is abstained on only
where the iterate is not finite or the system cannot be formed.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import jax.numpy as jnp
import joblib
import numpy as np
from jaxtyping import Float
from scipy.optimize import root
from scipy.sparse.linalg import LinearOperator, lgmres

from attacks.base import Estimates, Progress, Reconstruction, all_abstain, silent, unreadable
from attacks.closed_form.decoding import looks_unrated
from attacks.root_finding import systems
from victims.common.seeds import Purpose, generator
from victims.common.validation import Rule, above, at_least, one_of, or_none, require_fields
from victims.transcript.manifest import Manifest
from victims.transcript.view import ATTRIBUTE, ITEM, Uploads, View

METHODS = ("hybr", "broyden2", "linearmixing", "df-sane", "anderson", "lm", "krylov")
DENSE = ("hybr", "lm")
SERIAL_CLIENTS = 4  # below this a second process costs more than it saves


@dataclass(frozen=True)
class Root:
    """One SciPy solver with its options.

    Attributes
    ----------
    method : str
        One of ``METHODS``.
    start_rating, start_attribute : float
        Start of the unknowns of (20), (24), in stars and 0..1.
    start_factor : float
        Root mean square of the coordinates of p at the start of (31), (33); not 0, where the systems
        are singular.
    start_along : str
        Direction of that start: ``row``, the upload of item j, which is a multiple of p; or
        ``constant``, equal coordinates, which has to find every sign by itself.
    factor : int or None
        The fixed factor n of (20), (24), 0-based; None draws one per client.
    item : int or None
        Position in the client's list of the fixed item j of (31), (33); None draws one per client.
    solutions : int or None
        Systems solved per client; above 1 it is the paper's procedure under noise (section 6.2): other
        fixed factors n in semi-als, other items j in sgd, drawn without repetition; their solutions are
        clipped to the domain and averaged. None solves for every n, or every j that was uploaded.
    tolerance : float
        Passed to ``scipy.optimize.root`` as ``tol``.
    max_iterations : int
        Iterations (for hybr, lm and df-sane: function evaluations) before giving up.
    max_evaluations : int
        Evaluations of the system before giving up, for every method.
    max_dense : int
        Largest number of unknowns for which hybr and lm may form a dense Jacobian.
    jobs : int
        Parallel processes; -1 is one per core.
    """

    method: str = "hybr"
    start_rating: float = 3.0
    start_attribute: float = 0.5
    start_factor: float = 0.1
    start_along: str = "row"
    factor: int | None = None
    item: int | None = None
    solutions: int | None = 1
    tolerance: float = 1e-10
    max_iterations: int = 400
    max_evaluations: int = 5000
    max_dense: int = 1500
    jobs: int = -1

    def __post_init__(self) -> None:
        require_fields(
            self,
            "root",
            method=one_of(*METHODS),
            start_factor=Rule("not 0, where the system is singular", bool),
            start_along=one_of("row", "constant"),
            factor=or_none(at_least(0)),
            item=or_none(at_least(0)),
            solutions=or_none(at_least(1)),
            tolerance=above(0),
            max_iterations=at_least(1),
            max_evaluations=at_least(1),
            max_dense=at_least(1),
            jobs=Rule("-1 or >= 1", lambda jobs: jobs == -1 or jobs >= 1),
        )

    @property
    def name(self) -> str:
        """``root-METHOD``."""
        return f"root-{self.method}"

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Solve the clients of a view one by one, in parallel processes.

        Parameters
        ----------
        view : View
            The last round is used in semi-als, the last two consecutive ones in sgd.
        key : int
            Seed of the fixed factor or item of every client.
        progress : callable

        Returns
        -------
        Reconstruction
            Diagnostics: ``converged`` (SciPy's success flag), ``evaluations`` of the residual and
            ``seconds`` per client.
        """
        options = {**asdict(self), "seed": key}
        obstacle = _obstacle(view)
        if obstacle:
            return all_abstain(self.name, view.users, obstacle, options)
        answers: dict[int, _Answer] = {}
        jobs = 1 if view.users.size < SERIAL_CLIENTS else self.jobs
        solve = joblib.delayed(_solve)
        pool = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        for answer in pool(solve(self, view.manifest, client, key) for client in _clients(view)):
            answers[answer.user] = answer
            progress(len(answers), view.users.size)
        ordered = [answers[int(user)] for user in view.users]
        return Reconstruction(
            self.name,
            view.users,
            tuple(answer.estimates for answer in ordered if answer.estimates is not None),
            {answer.user: answer.reason for answer in ordered if answer.reason},
            options,
            {
                "converged": np.array([answer.converged for answer in ordered], bool),
                "evaluations": np.array([answer.evaluations for answer in ordered], np.int64),
                "seconds": np.array([answer.seconds for answer in ordered], np.float64),
            },
        )


@dataclass(frozen=True)
class _Round:
    """One client's rows of one round, without padding."""

    kind: np.ndarray
    index: np.ndarray
    rows: Float[np.ndarray, "rows K"]
    factors: Float[np.ndarray, "rows K"]


@dataclass(frozen=True)
class _Client:
    user: int
    rounds: tuple[_Round, ...]


@dataclass(frozen=True)
class _Answer:
    user: int
    estimates: Estimates | None
    reason: str
    converged: bool = False
    evaluations: int = 0
    seconds: float = 0.0


def _obstacle(view: View) -> str:
    """Why no system can be formed, or nothing."""
    manifest = view.manifest
    if reason := unreadable(view):
        return reason
    needed = ["lambda_factors"]
    if manifest.n_attributes:
        needed.append("lambda_attributes")
    if manifest.weighting == "include-unrated":
        needed.append("alpha")
    if manifest.update == "sgd":
        needed.append("client_learning_rate")
        if not (np.diff(view.rounds) == 1).any():
            return "the systems of sgd need two consecutive rounds"
    missing = [name for name in needed if name not in manifest.hyperparameters]
    return f"{' and '.join(missing)} must be public, the manifest lacks it" if missing else ""


def _clients(view: View) -> Iterator[_Client]:
    """The rounds that the system of the update needs, client by client."""
    wanted = [view.rounds.size - 1]
    if view.manifest.update == "sgd":
        first = int(np.flatnonzero(np.diff(view.rounds) == 1)[-1])
        wanted = [first, first + 1]
    for batch in view.batches():
        for row, user in enumerate(batch.users):
            rounds = tuple(_one(batch.rounds[k], row, view.manifest) for k in wanted)
            yield _Client(int(user), rounds)


def _one(uploads: Uploads, row: int, manifest: Manifest) -> _Round:
    def own(column: np.ndarray) -> np.ndarray:
        return column[0 if column.shape[0] == 1 else row]

    valid = own(uploads.valid)
    factors = uploads.broadcast.factors[own(uploads.position)[valid]]
    rows = uploads.gradients[row][valid].astype(np.float64)
    rows = (rows - manifest.upload.regularization * factors) / manifest.upload.scale
    return _Round(own(uploads.kind)[valid], own(uploads.index)[valid], rows, factors)


def _solve(attack: Root, manifest: Manifest, client: _Client, key: int) -> _Answer:
    start = time.perf_counter()
    rng = generator(key, Purpose.FIXED_FACTORS, client.user)
    last = client.rounds[-1]
    if any(part.rows.size == 0 or not part.rows.any() for part in client.rounds):
        return _Answer(client.user, None, "all uploaded rows of a needed round are zero or missing")
    if manifest.update == "semi-als":
        if attack.method in DENSE and last.kind.size > attack.max_dense:
            return _Answer(
                client.user,
                None,
                f"{last.kind.size} unknowns exceed max_dense = {attack.max_dense} for the dense "
                f"Jacobian of {attack.method}; use root-krylov or root-anderson",
            )
    elif not (last.kind == ITEM).any():
        return _Answer(client.user, None, "the client uploaded no item row")
    elif not np.array_equal(client.rounds[0].index, last.index):
        return _Answer(client.user, None, "the client's lists of two rounds differ")
    values, converged, evaluations, reason = [], [], 0, ""
    for number in _fixed_numbers(attack, manifest, last, rng):
        problem: _Problem
        if manifest.update == "semi-als":
            problem = _SemiAlsProblem(attack, manifest, last, number)
        else:
            problem = _SgdProblem(attack, manifest, client.rounds, number)
        value, success, failure = _solved(attack, problem)
        evaluations += problem.progress.evaluations
        reason = reason or failure
        if value is not None:
            values.append(value)
            converged.append(success)
    seconds = time.perf_counter() - start
    if not values:
        return _Answer(client.user, None, reason, False, evaluations, seconds)
    value = values[0]
    if attack.solutions != 1:
        highest = np.where(last.kind == ITEM, manifest.rating_levels[-1], 1.0)
        value = np.mean([np.clip(each, 0, highest) for each in values], axis=0)
    estimates = Estimates(np.array([client.user], np.int32), last.kind[None], last.index[None], value[None])
    return _Answer(client.user, estimates, "", all(converged), evaluations, seconds)


def _fixed_numbers(attack: Root, manifest: Manifest, last: _Round, rng: np.random.Generator) -> list[int]:
    """The fixed factors n of (20), (24), or the positions of the fixed items j of (31), (33)."""
    if manifest.update == "semi-als":
        candidates, given = np.arange(manifest.factors), attack.factor
    else:
        candidates, given = np.flatnonzero(last.kind == ITEM), attack.item
    if given is not None:
        return [int(candidates[given % candidates.size])]
    count = candidates.size if attack.solutions is None else min(attack.solutions, candidates.size)
    return rng.choice(candidates, count, replace=False).tolist()


def _solved(attack: Root, problem: _Problem) -> tuple[np.ndarray | None, bool, str]:
    """What one system says, whether its solver converged, and why there is nothing."""
    detail = ""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            solution, converged = _run(attack, problem)
    except _ExhaustedError:
        solution, converged = problem.progress.last_point, False
    except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
        solution, converged = np.full(problem.progress.start.shape, np.nan), False
        detail = f" ({error})"
    if not np.isfinite(solution).all():
        return None, False, f"{attack.method} left the finite numbers{detail}; try another start"
    with np.errstate(all="ignore"):
        value = problem.read(solution)
    if not np.isfinite(value).all():
        return None, False, f"{attack.method} ended where the answer is not finite; try another start"
    return value, converged, ""


def _run(attack: Root, problem: _Problem) -> tuple[np.ndarray, bool]:
    limit = "maxiter"
    if attack.method in ("hybr", "df-sane"):
        limit = "maxfev"
    options: dict[str, Any] = {limit: attack.max_iterations}
    jacobian = problem.jacobian if attack.method in DENSE else None
    if attack.method == "krylov":
        # SciPy hands over finite differences; exact products take their place
        def inner(_: object, right: np.ndarray, **given: Any) -> tuple[np.ndarray, int]:
            return problem.progress.inner_solve(problem.product, right, **given)

        options["jac_options"] = {"method": inner}
    if attack.method == "df-sane":
        options["fatol"] = attack.tolerance
        options["ftol"] = 0.0
        found = root(problem.residual, problem.progress.start, method=attack.method, options=options)
    else:
        found = root(
            problem.residual,
            problem.progress.start,
            method=attack.method,
            jac=jacobian,
            tol=attack.tolerance,
            options=options,
        )
    return np.asarray(found.x, np.float64), bool(found.success)


class _Problem(Protocol):
    """What ``scipy.optimize.root`` needs of one client."""

    progress: _Counted

    def residual(self, unknown: np.ndarray) -> np.ndarray: ...

    def jacobian(self, unknown: np.ndarray) -> np.ndarray: ...

    def product(self, point: np.ndarray, direction: np.ndarray) -> np.ndarray: ...

    def read(self, solution: np.ndarray) -> np.ndarray: ...


class _ExhaustedError(Exception):
    """The budget of evaluations is spent."""


class _Counted:
    """Counts evaluations, remembers the last point and holds the linear solve of krylov."""

    def __init__(self, start: np.ndarray, budget: int) -> None:
        self.start = start
        self.last_point = start
        self.budget = budget
        self.evaluations = 0

    def count(self) -> None:
        if self.evaluations >= self.budget:
            raise _ExhaustedError
        self.evaluations += 1

    def inner_solve(
        self, product: Callable[[np.ndarray, np.ndarray], np.ndarray], right: np.ndarray, **given: Any
    ) -> tuple[np.ndarray, int]:
        """Solve J dx = right by LGMRES with exact products ``product(point, direction)``.

        The last evaluated point is the point of linearisation: SciPy's line search ends with the
        accepted one.
        """
        point = self.last_point

        def counted(direction: np.ndarray) -> np.ndarray:
            self.count()
            return product(point, np.ravel(direction))

        operator = LinearOperator((right.size, right.size), matvec=counted, dtype=np.float64)
        wanted = {name: given[name] for name in ("rtol", "maxiter") if name in given}
        return lgmres(operator, right, **wanted)


class _SemiAlsProblem:
    """(20) or (24) of one client: SciPy sees its own size, JAX a padded one."""

    def __init__(self, attack: Root, manifest: Manifest, last: _Round, n: int) -> None:
        self.size = last.kind.size
        n_factors = manifest.factors
        padded = 64 << max(0, int(np.ceil(np.log2(self.size / 64))))
        constants = manifest.hyperparameters
        is_item = last.kind == ITEM
        weight = np.where(is_item, 1.0, constants.get("lambda_attributes", 1.0))
        alpha = constants["alpha"] if manifest.weighting == "include-unrated" else 1.0
        self.padding = padded - self.size
        self.system = systems.SemiAls(
            factors=jnp.asarray(np.pad(last.factors, ((0, self.padding), (0, 0)))),
            weight=jnp.asarray(self._pad(weight)),
            item=jnp.asarray(self._pad(is_item)),
            column=jnp.asarray(self._pad(last.rows[:, n])),
            n=jnp.asarray(np.eye(n_factors)[n]),
            ridge=jnp.asarray(constants["lambda_factors"], jnp.float64),
            alpha=jnp.asarray(alpha, jnp.float64),
        )
        start = np.where(is_item, attack.start_rating, attack.start_attribute)
        self.progress = _Counted(start, attack.max_evaluations)

    def _pad(self, values: np.ndarray) -> np.ndarray:
        return np.pad(values, (0, self.padding))

    def residual(self, unknown: np.ndarray) -> np.ndarray:
        self.progress.count()
        self.progress.last_point = unknown
        return np.asarray(systems.residual(systems.semi_als, self._pad(unknown), self.system))[: self.size]

    def jacobian(self, unknown: np.ndarray) -> np.ndarray:
        matrix = systems.jacobian(systems.semi_als, self._pad(unknown), self.system)
        return np.asarray(matrix)[: self.size, : self.size]

    def product(self, point: np.ndarray, direction: np.ndarray) -> np.ndarray:
        out = systems.jacobian_product(systems.semi_als, self._pad(point), self._pad(direction), self.system)
        return np.asarray(out)[: self.size]

    def read(self, solution: np.ndarray) -> np.ndarray:
        return solution


class _SgdProblem:
    """(31) or (33) of one client: K unknowns."""

    def __init__(
        self,
        attack: Root,
        manifest: Manifest,
        rounds: tuple[_Round, ...],
        j: int,
    ) -> None:
        self.before, after = rounds
        self.manifest = manifest
        constants = manifest.hyperparameters
        weight = np.where(self.before.kind == ATTRIBUTE, constants.get("lambda_attributes", 1.0), 1.0)
        alpha = constants["alpha"] if manifest.weighting == "include-unrated" else 1.0
        self.system = systems.Sgd(
            before=jnp.asarray(self.before.rows[j]),
            after=jnp.asarray(after.rows[j]),
            q_before=jnp.asarray(self.before.factors[j]),
            q_after=jnp.asarray(after.factors[j]),
            pull=jnp.asarray(self.before.rows.T @ (weight[:, None] * self.before.factors)),
            rate=jnp.asarray(constants["client_learning_rate"], jnp.float64),
            ridge=jnp.asarray(constants["lambda_factors"], jnp.float64),
            alpha=jnp.asarray(alpha, jnp.float64),
        )
        start = np.full(manifest.factors, attack.start_factor)
        if attack.start_along == "row":
            row = self.before.rows[j]
            norm = np.linalg.norm(row)
            start = start * np.sqrt(row.size) * row / (norm if norm > 0 else 1.0)
        self.progress = _Counted(start, attack.max_evaluations)

    def residual(self, unknown: np.ndarray) -> np.ndarray:
        self.progress.count()
        self.progress.last_point = unknown
        return np.asarray(systems.residual(systems.sgd, unknown, self.system))

    def jacobian(self, unknown: np.ndarray) -> np.ndarray:
        return np.asarray(systems.jacobian(systems.sgd, unknown, self.system))

    def product(self, point: np.ndarray, direction: np.ndarray) -> np.ndarray:
        return np.asarray(systems.jacobian_product(systems.sgd, point, direction, self.system))

    def read(self, solution: np.ndarray) -> np.ndarray:
        """(32) with the whole vector p instead of one coordinate; p and -p solve the system alike,
        and ratings are positive. In include-unrated the weight of each row is decided first."""
        error = self.before.rows @ solution / (solution @ solution)
        predicted = self.before.factors @ solution
        is_item = self.before.kind == ITEM
        value = error + predicted
        if self.manifest.weighting == "observed-only":
            sign = 1.0 if value[is_item].sum() >= 0 else -1.0
            return sign * value
        alpha = self.manifest.hyperparameters["alpha"]
        levels = np.array(self.manifest.rating_levels)
        strength = np.abs(error + alpha * predicted)
        sign = 1.0 if (strength * value)[is_item].sum() >= 0 else -1.0
        unrated = looks_unrated(sign * error, sign * predicted, levels, alpha) & is_item
        return np.where(unrated, 0.0, sign * value)
