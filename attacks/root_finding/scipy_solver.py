"""One call of ``scipy.optimize.root``, whose failures are data.

References
----------
P. Mai, Y. Pang, "PrivMVMF: Privacy-Preserving Multi-View Matrix Factorization for Recommender
Systems", arXiv:2210.07775, Table 6.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import root

from attacks.root_finding.problems import BudgetExhaustedError, Problem

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
