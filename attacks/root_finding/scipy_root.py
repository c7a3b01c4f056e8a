"""The paper's attack: the non-linear systems of section 4 solved by ``scipy.optimize.root``.

Mai & Pang 2022, sections 4 and 6.2, Tables 3 and 6. One attack per SciPy method, client by client, in
parallel processes. "Scalar Jacobian approximation" in Table 6 is SciPy's wording for ``linearmixing``,
while the citation is the method of ``df-sane``: both are here under their SciPy names.

What it assumes: uploads in the clear, all public constants of the update, the manifest's weighting. The
start decides how well the solvers do, so it is an option and is recorded. A solver that fails is data: its
last iterate is still an answer (as in the paper), and ``converged`` says 0. Where nothing that is declared
moves the rows, answers that are no ratings are not given (``attacks.root_finding.judgement``): the clients'
rule is another one, the root a wrong one, or the solver stopped short. ``answer="any"`` gives them, as the
paper does. The client's factor p is part of the answer: in sgd it is the unknown, in semi-als it
follows from the answers by (8); of several systems it is the mean.

References
----------
P. Mai, Y. Pang, "PrivMVMF: Privacy-Preserving Multi-View Matrix Factorization for Recommender
Systems", arXiv:2210.07775.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import joblib
import numpy as np
from jaxtyping import Float
from scipy.optimize import root

from attacks.base import Estimates, Progress, Reconstruction, all_abstain, joined, silent
from attacks.client_rules.premises import unlike
from attacks.closed_form.common_numbers import abstain_if_lowered
from attacks.closed_form.fit.arbiter import abstain_if_few_fit
from attacks.closed_form.uploads.undeclared_pull import as_rows_say
from attacks.closed_form.uploads.upload_kind import uploaded_otherwise
from attacks.obstacles import unreadable
from attacks.root_finding.judgement import Told, is_judged, off_the_grid, sends_unrated, told_by_rows
from attacks.root_finding.problems import (
    BudgetExhaustedError,
    ClientRows,
    ClientUploads,
    Problem,
    SemiAlsProblem,
    SgdProblem,
    clients_of,
)
from victims.common.seeds import Purpose, generator
from victims.common.validation import Rule, above, at_least, one_of, or_none, require_fields
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM, View

SERIAL_CLIENTS = 4  # below this a second process costs more than it saves
METHODS = ("hybr", "broyden2", "linearmixing", "df-sane", "anderson", "lm", "krylov")
DENSE = ("hybr", "lm")
ROOT = 1e-6  # of the largest equation at the start: lm reports success at a least sum of squares, too
LARGEST = 1e30  # stars that an answer may have: files hold no larger numbers


class Solution(NamedTuple):
    """What a solver ended with: ratings and attributes, or None and the reason why there are none; and p.

    ``converged`` is SciPy's success flag, and ``solved`` says that the equations hold there.
    """

    value: Float[np.ndarray, " rows"] | None
    converged: bool
    reason: str = ""
    factor: Float[np.ndarray, " K"] | None = None
    solved: bool = False


def solve(problem: Problem, *, method: str, tolerance: float, max_iterations: int) -> Solution:
    """Solve one system; the last iterate is an answer, too."""
    detail, solved = "", False
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            point, converged, solved = _root(problem, method, tolerance, max_iterations)
    except BudgetExhaustedError:
        point, converged = problem.evaluations.last_point, False
    except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
        point, converged = np.full(problem.evaluations.start.shape, np.nan), False
        detail = f" ({error})"
    if not np.isfinite(point).all():
        return Solution(None, False, f"{method} left the finite numbers{detail}; try another start")
    with np.errstate(all="ignore"):
        value, factor = problem.read(point), problem.factor(point)
    if not (np.abs(value) <= LARGEST).all():  # also where it is NaN
        return Solution(None, False, f"{method} ended where the answer is not finite; try another start")
    return Solution(value, converged, factor=factor, solved=solved)


def _root(
    problem: Problem, method: str, tolerance: float, max_iterations: int
) -> tuple[np.ndarray, bool, bool]:
    """SciPy's last point, its success flag, and whether that is a root."""
    sizes: list[float] = []

    def residual(unknown: np.ndarray) -> np.ndarray:
        out = problem.residual(unknown)
        if not sizes:
            sizes.append(float(np.abs(out).max()))
        return out

    limit = "maxfev" if method in ("hybr", "df-sane") else "maxiter"
    options: dict[str, Any] = {limit: max_iterations}
    more: dict[str, Any] = {"tol": tolerance}
    if method in DENSE:
        more["jac"] = problem.jacobian
    if method == "krylov":
        # SciPy hands over finite differences; exact products take their place
        def inner(_: object, right: np.ndarray, **given: Any) -> tuple[np.ndarray, int]:
            return problem.evaluations.inner_solve(problem.product, right, **given)

        options["jac_options"] = {"method": inner}
    if method == "df-sane":
        options |= {"fatol": tolerance, "ftol": 0.0}
        more = {}
    found = root(residual, problem.evaluations.start, method=method, options=options, **more)
    solved = bool(found.success and np.abs(found.fun).max() <= ROOT * sizes[0])
    return np.asarray(found.x, np.float64), bool(found.success), solved


@dataclass(frozen=True)
class Root:
    """One SciPy solver with its options.

    Attributes
    ----------
    method : str
        One of ``METHODS``.
    form : "corrected" or "printed"
        Of (34) and (42), which include-unrated alone needs. As printed the truth is no solution.
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
    answer : "judged" or "any"
        Whether a client whose numbers are no ratings is abstained on. Means of several ``solutions`` and
        noisy rows are not judged.
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
    form: str = "corrected"
    start_rating: float = 3.0
    start_attribute: float = 0.5
    start_factor: float = 0.1
    start_along: str = "row"
    factor: int | None = None
    item: int | None = None
    solutions: int | None = 1
    answer: Literal["judged", "any"] = "judged"
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
            form=one_of("corrected", "printed"),
            start_factor=Rule("not 0, where the system is singular", bool),
            start_along=one_of("row", "constant"),
            factor=or_none(at_least(0)),
            item=or_none(at_least(0)),
            solutions=or_none(at_least(1)),
            answer=one_of("judged", "any"),
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
        """Solve the clients of a view one by one, in parallel processes."""
        options = {**asdict(self), "seed": key}
        obstacle = self._obstacle(view)
        if not obstacle:
            view, obstacle = as_rows_say(view)
        if obstacle:
            return all_abstain(self.name, view.users, obstacle, options)
        answers: dict[int, ClientAnswer] = {}
        jobs = 1 if view.users.size < SERIAL_CLIENTS else self.jobs
        task = joblib.delayed(solve_client)
        pool = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        for answer in pool(task(self, view.manifest, client, key) for client in clients_of(view)):
            answers[answer.user] = answer
            progress(len(answers), view.users.size)
        ordered = [answers[int(user)] for user in view.users]
        found = Reconstruction(
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
            factors=joined(answer.factor for answer in ordered if answer.factor is not None),
        )
        if not self.judges(view.manifest):
            return found
        contradicting = np.array([answer.contradicts for answer in ordered], bool)
        return abstain_if_lowered(abstain_if_few_fit(found, contradicting), view)

    def judges(self, manifest: Manifest) -> bool:
        """Whether numbers that are no ratings are abstained on."""
        return self.answer == "judged" and self.solutions == 1 and is_judged(manifest)

    def obstacle(self, view: View) -> str:
        """Why no system can be formed, or nothing."""
        return self._obstacle(view) or as_rows_say(view)[1]

    def _obstacle(self, view: View) -> str:
        """The same, but for what only rows say of a multiple of their factors."""
        manifest = view.manifest
        if reason := unreadable(view) or unlike(view, own_references=True, follows=True):
            return reason
        if reason := uploaded_otherwise(view):
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


@dataclass(frozen=True)
class ClientAnswer:
    """What was solved for one client, or why nothing was."""

    user: int
    estimates: Estimates | None
    reason: str
    converged: bool = False
    evaluations: int = 0
    seconds: float = 0.0
    factor: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None  # as ``attacks.base.joined`` takes it
    contradicts: bool = False  # its exact rows, the declaration


def solve_client(attack: Root, manifest: Manifest, client: ClientUploads, key: int) -> ClientAnswer:
    """Solve the systems of one client, and average their solutions."""
    start = time.perf_counter()
    rng = generator(key, Purpose.FIXED_FACTORS, client.user)
    if reason := _unsolvable(attack, manifest, client):
        return ClientAnswer(client.user, None, reason)
    last = client.rounds[-1]
    values, factors, converged, solved, evaluations, reason = [], [], [], [], 0, ""
    for fixed in _fixed_indices(attack, manifest, last, rng):
        problem = _problem(attack, manifest, client, fixed)
        solution = solve(
            problem,
            method=attack.method,
            tolerance=attack.tolerance,
            max_iterations=attack.max_iterations,
        )
        evaluations += problem.evaluations.count
        reason = reason or solution.reason
        if solution.value is not None and solution.factor is not None:
            values.append(solution.value)
            factors.append(solution.factor)
            converged.append(solution.converged)
            solved.append(solution.solved)
    seconds = time.perf_counter() - start
    if not values:
        return ClientAnswer(client.user, None, reason, False, evaluations, seconds)
    value = values[0]
    if attack.solutions != 1:
        highest = np.where(last.kind == ITEM, manifest.rating_levels[-1], 1.0)
        value = np.mean([np.clip(one, 0, highest) for one in values], axis=0)
    elif attack.judges(manifest):
        ended = Solution(value, converged[0], factor=factors[0], solved=solved[0])
        told = _judged(attack, manifest, client, ended)
        if told.reason:
            return ClientAnswer(
                client.user,
                None,
                told.reason,
                converged[0],
                evaluations,
                seconds,
                contradicts=told.contradicts,
            )
        value = told.value
    estimates = Estimates(np.array([client.user], np.int32), last.kind[None], last.index[None], value[None])
    factor = np.array([client.user]), np.array([client.first]), np.mean(factors, axis=0)[None]
    return ClientAnswer(client.user, estimates, "", all(converged), evaluations, seconds, factor)


def _judged(attack: Root, manifest: Manifest, client: ClientUploads, ended: Solution) -> Told:
    """What may be believed of the numbers that a solver ended with."""
    value, factor = ended.value, ended.factor
    assert value is not None
    assert factor is not None
    item = client.rounds[-1].kind == ITEM
    told = told_by_rows(manifest, client.rounds[0], value, factor, solved=ended.solved)
    reason = off_the_grid(
        value,
        item,
        np.array(manifest.rating_levels),
        unrated=sends_unrated(manifest, int(item.sum())),
        start=attack.start_rating if manifest.update == "semi-als" else None,
        converged=ended.converged,
    )
    return told._replace(reason=reason or told.reason)


def _unsolvable(attack: Root, manifest: Manifest, client: ClientUploads) -> str:
    """Why no system of this client can be formed, or nothing."""
    last = client.rounds[-1]
    if any(uploads.rows.size == 0 or not uploads.rows.any() for uploads in client.rounds):
        return "all uploaded rows of a needed round are zero or missing"
    if manifest.update == "semi-als":
        if attack.method in DENSE and last.kind.size > attack.max_dense:
            return (
                f"{last.kind.size} unknowns exceed max_dense = {attack.max_dense} for the dense "
                f"Jacobian of {attack.method}; use root-krylov or root-anderson"
            )
    elif not (last.kind == ITEM).any():
        return "the client uploaded no item row"
    elif not np.array_equal(client.rounds[0].index, last.index):
        return "the client's lists of two rounds differ"
    return ""


def _problem(attack: Root, manifest: Manifest, client: ClientUploads, fixed: int) -> Problem:
    """The system of the protocol's update, at a fixed factor or item."""
    if manifest.update == "semi-als":
        return SemiAlsProblem(
            manifest,
            client.rounds[-1],
            fixed,
            start_rating=attack.start_rating,
            start_attribute=attack.start_attribute,
            budget=attack.max_evaluations,
            printed=attack.form == "printed",
        )
    return SgdProblem(
        manifest,
        client.rounds,
        fixed,
        start_factor=attack.start_factor,
        start_along=attack.start_along,
        budget=attack.max_evaluations,
        printed=attack.form == "printed",
    )


def _fixed_indices(attack: Root, manifest: Manifest, last: ClientRows, rng: np.random.Generator) -> list[int]:
    """The fixed factors n of (20), (24), or the positions of the fixed items j of (31), (33)."""
    if manifest.update == "semi-als":
        candidates, given = np.arange(manifest.factors), attack.factor
    else:
        candidates, given = np.flatnonzero(last.kind == ITEM), attack.item
    if given is not None:
        return [int(candidates[given % candidates.size])]
    count = candidates.size if attack.solutions is None else min(attack.solutions, candidates.size)
    return rng.choice(candidates, count, replace=False).tolist()
