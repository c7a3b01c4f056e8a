"""The paper's systems and every SciPy solver on them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attacks.root_finding import systems
from attacks.root_finding.problems import SemiAlsProblem, SgdProblem, clients_of
from attacks.root_finding.scipy_root import METHODS, Root
from tests.attacks.closed_form.test_spectral import dense, with_constants
from tests.oracles.simulator import SCENARIOS, Reference


def problems(outside, update: str, weighting: str, *, printed: bool = False):
    """(client, problem, solution) of a reference transcript."""
    reference, transcript = outside(update=update, weighting=weighting)
    view = transcript.view("server")
    for client in clients_of(view):
        if update == "semi-als":
            last = client.rounds[-1]
            problem = SemiAlsProblem(
                view.manifest, last, 1, start_rating=3.0, start_attribute=0.5, budget=5000, printed=printed
            )
            truth = np.where(
                last.kind == 0,
                reference.ratings[client.user][np.minimum(last.index, 29)],
                reference.attributes[client.user][np.minimum(last.index, 4)],
            )
        else:
            item = int(np.flatnonzero(client.rounds[0].kind == 0)[0])
            problem = SgdProblem(
                view.manifest,
                client.rounds,
                item,
                start_factor=0.1,
                start_along="row",
                budget=5000,
                printed=printed,
            )
            truth = factor_of(reference, client.user)
        yield client, problem, truth


def factor_of(reference: Reference, user: int) -> np.ndarray:
    """p_i of round 1 from two rows whose targets are known: f = (x - p . t) p."""
    state, messages = reference.run()
    row = messages[1, user, "attribute", 0]
    direction = row / np.linalg.norm(row)
    t = state[1, "attribute", 0]
    x = reference.attributes[user, 0]
    # |row| = sign (x - s d.t) s: a quadratic in s; check each root on another row
    size = row @ direction
    best = None
    for s in np.roots([-(direction @ t), x, -size]):
        if abs(s.imag) < 1e-9:
            p = s.real * direction
            other = (reference.attributes[user, 1] - p @ state[1, "attribute", 1]) * p
            miss = np.abs(other - messages[1, user, "attribute", 1]).max()
            if best is None or miss < best[0]:
                best = miss, p
    assert best is not None
    assert best[0] < 1e-9
    return best[1]


@pytest.mark.parametrize(("update", "weighting"), SCENARIOS)
class TestSystems:
    def test_the_truth_is_a_root(self, outside, update, weighting):
        for _, problem, truth in problems(outside, update, weighting):
            np.testing.assert_allclose(problem.residual(truth), 0, atol=1e-9)

    def test_the_factor_of_the_truth_makes_the_rows(self, outside, update, weighting):
        """f = (x - p . t) p of two rows of known attributes: p of one has to make the other; also from -p."""
        for client, problem, truth in problems(outside, update, weighting):
            rows = client.rounds[0]
            for solution in (truth, -truth) if update == "sgd" else (truth,):
                p = problem.factor(solution)
                direction = rows.rows[rows.kind == 1] @ p / (p @ p)  # x - p . t
                x = direction + rows.factors[rows.kind == 1] @ p
                np.testing.assert_allclose(np.abs(2 * x - 1), 1, atol=1e-6)  # 0 or 1
                np.testing.assert_allclose(direction[:, None] * p, rows.rows[rows.kind == 1], atol=1e-9)

    def test_jacobian_and_products_agree_with_differences(self, outside, update, weighting):
        rng = np.random.default_rng(1)
        for _, problem, truth in list(problems(outside, update, weighting))[3:5]:
            point = truth + 0.05 * (1 + rng.random(truth.size)) * np.sign(truth + 0.5)
            direction = rng.normal(size=truth.size)
            step = 1e-6
            difference = problem.residual(point + step * direction)
            difference = (difference - problem.residual(point - step * direction)) / (2 * step)
            dense_product = problem.jacobian(point) @ direction
            np.testing.assert_allclose(dense_product, difference, rtol=2e-4, atol=1e-6)
            problem.residual(point)  # krylov linearises at the last evaluated point
            solved, status = problem.evaluations.inner_solve(problem.product, dense_product, rtol=1e-10)
            assert status == 0
            np.testing.assert_allclose(problem.jacobian(point) @ solved, dense_product, atol=1e-6)


def test_smoothing_gives_unrated_items_a_second_root():
    """Why (24) reads "rated" into items that are not, however well a solver converges.

    With c = alpha + (1 - alpha) r in 0 <= r <= 1, an unrated item with m = p . q demands
    c(r) (r - m) = -alpha m, which r = 0 solves and so does r = m - alpha / (1 - alpha). For m above
    0.61 (alpha = 0.1) the second one rounds to 1. Mai & Pang 2022, Eq. (42), as corrected.
    """
    alpha, m = 0.1, 0.9
    roots = [0.0, m - alpha / (1 - alpha)]
    items = jnp.array([True, True])
    weights = systems.smooth_weight(jnp.array(roots), jnp.array(alpha), items)
    np.testing.assert_allclose(np.asarray(weights) * (np.array(roots) - m), -alpha * m)
    assert 0.5 < roots[1] < 1


def test_as_printed_an_unrated_item_predicts_nothing(outside):
    """(42) as printed: c = 0 for r = 0, while the client uploads alpha times its error."""
    for client, problem, truth in problems(outside, "semi-als", "include-unrated", printed=True):
        last = client.rounds[-1]
        unrated = (last.kind == 0) & (truth == 0)
        residual = problem.residual(truth)
        np.testing.assert_allclose(residual[unrated], -last.rows[unrated, 1], atol=1e-12)
        assert np.abs(residual).max() > 1e-3


def test_as_printed_no_factor_of_a_client_solves_two_rounds(outside):
    """(34) has p where q is meant."""
    for client, problem, truth in problems(outside, "sgd", "include-unrated", printed=True):
        size = np.abs(client.rounds[1].rows[0]).max()
        assert np.abs(problem.residual(truth)).max() > 1e-4 * size


def test_the_corrected_systems_of_sgd_read_what_the_printed_do_not(transcripts, ratings):
    method = "lm"
    actual = ratings.matrix().toarray()[:10]
    view = transcripts["sgd", "include-unrated"].view("server").select(np.arange(10))
    right = {}
    for form in ("corrected", "printed"):
        found = Root(method, form=form, jobs=1).attack(view, 0)
        estimates, _ = dense(found, *actual.shape, ratings.n_attributes)
        same = np.rint(np.clip(np.nan_to_num(estimates), 0, 5)) == actual
        right[form] = float(same[actual > 0].mean())
    assert right["corrected"] > 0.8
    assert right["printed"] < 0.5


@pytest.mark.parametrize("update", ["semi-als", "sgd"])
def test_observed_only_has_nothing_to_correct(outside, update):
    view = outside(update=update, weighting="observed-only")[1].view("server")
    corrected, printed = (
        _columns(Root("hybr", form=form, jobs=1).attack(view, 0)) for form in ("corrected", "printed")
    )
    np.testing.assert_array_equal(corrected[3], printed[3])


# Clients that each method reads on the synthetic recordings, from one fixed start (r = 3, x = 0.5; sgd: along
# the row) and a drawn n or j; it abstains on the others. A pair in WEAK reads fewer than FEW of them, every
# other pair as many or more: strict both ways, so that a pair that changes must be moved.
FEW = 0.6
SEVERAL = "the K equations of one item have several roots; the start decides which is found"
STALLS = "a scalar or low-rank Jacobian stalls within the iteration limit"
WEAK = {
    ("semi-als", "observed-only", "linearmixing"): STALLS,
    ("semi-als", "include-unrated", "linearmixing"): STALLS,
    ("sgd", "observed-only", "broyden2"): STALLS,
    ("sgd", "observed-only", "linearmixing"): STALLS,
    ("sgd", "observed-only", "anderson"): STALLS,
    ("sgd", "observed-only", "df-sane"): SEVERAL,
    ("sgd", "include-unrated", "broyden2"): STALLS,
    ("sgd", "include-unrated", "linearmixing"): STALLS,
}


@pytest.mark.thorough
@pytest.mark.parametrize("scenario", SCENARIOS, ids="/".join)
def test_solver_matrix(transcripts, ratings, scenario):
    """Who is answered, and that nobody is wrongly; with one scenario by default."""
    actual = ratings.matrix().toarray()
    view = transcripts[scenario].view("server")
    view = view.select(view.users[:20])
    answered = {}
    for method in METHODS:
        found = Root(method, jobs=1).attack(view, 0)
        estimates, _ = dense(found, *actual.shape, ratings.n_attributes)
        wrong = np.rint(np.clip(np.nan_to_num(estimates), 0, 5)) != actual
        read = np.setdiff1d(view.users, list(found.abstained))
        answered[*scenario, method] = read.size / view.users.size
        for user in read:
            assert wrong[user][actual[user] > 0].mean() < 0.2, (method, user)
    weak = {pair for pair, share in answered.items() if share < FEW}
    assert weak == {pair for pair in WEAK if pair[:2] == scenario}, answered


class TestFailureIsData:
    def test_a_short_limit_is_reported(self, outside):
        _, transcript = outside(weighting="include-unrated")
        found = Root("broyden2", max_iterations=1, jobs=1).attack(transcript.view("server"), 0)
        assert not found.diagnostics["converged"].all()
        assert len(found.blocks) + len(found.abstained) == 12

    def test_the_budget_bounds_krylov(self, outside):
        _, transcript = outside(weighting="include-unrated")
        attack = Root("krylov", max_evaluations=40, answer="any", jobs=1)
        found = attack.attack(transcript.view("server"), 0)
        assert found.diagnostics["evaluations"].max() == 40
        assert not found.diagnostics["converged"].all()
        assert len(found.blocks) == 12  # the last iterate is the answer

    def test_dense_limit(self, outside):
        _, transcript = outside(weighting="include-unrated")
        found = Root("hybr", max_dense=10, jobs=1).attack(transcript.view("server"), 0)
        assert len(found.abstained) == 12
        assert "root-krylov" in found.abstained[0]

    def test_one_round_of_sgd(self, outside):
        _, transcript = outside(update="sgd", rounds=(2,))
        found = Root("hybr", jobs=1).attack(transcript.view("server"), 0)
        assert "two consecutive rounds" in found.abstained[0]

    def test_hidden_constant(self, outside):
        _, transcript = outside()
        view = with_constants(transcript, lambda_factors=None)
        assert "lambda_factors" in Root("hybr", jobs=1).attack(view, 0).abstained[0]

    @pytest.mark.parametrize(
        "options",
        [{"method": "newton"}, {"form": "meant"}, {"start_factor": 0.0}, {"jobs": 0}, {"tolerance": 0.0}],
    )
    def test_bad_options(self, options):
        with pytest.raises(ValueError, match=next(iter(options))):
            Root(**options)


@pytest.mark.thorough
def test_processes_change_no_byte(outside):
    _, transcript = outside(update="sgd", weighting="include-unrated")
    view = transcript.view("server")
    serial, parallel = (Root("hybr", jobs=jobs).attack(view, 3) for jobs in (1, 2))
    for a, b in zip(serial.rows(), parallel.rows(), strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.thorough
def test_traced_once_per_padded_size(outside):
    """Re-tracing for every client would cost more than solving."""
    jax.clear_caches()
    _, transcript = outside(n_users=30)
    Root("hybr", jobs=1).attack(transcript.view("server"), 0)
    assert systems.residual._cache_size() == 1
    assert systems.jacobian._cache_size() == 1


class TestUnderNoise:
    """The paper's procedure: several solutions, clipped to the domain and averaged (section 6.2)."""

    def test_it_is_the_mean_of_the_clipped_solutions(self, outside):
        _, transcript = outside(update="semi-als", weighting="observed-only")
        view = transcript.view("server")
        view = view.select(view.users[:3])
        one_by_one = [
            dict(zip(zip(*rows[:3], strict=True), rows[3], strict=True))
            for n in range(view.manifest.factors)
            for rows in [_columns(Root(factor=n).attack(view, 0))]
        ]
        averaged = _columns(Root(solutions=None).attack(view, 0))
        highest = view.manifest.rating_levels[-1]
        for user, kind, index, value in zip(*averaged[:4], strict=True):
            top = highest if kind == 0 else 1.0
            each = [np.clip(found[user, kind, index], 0, top) for found in one_by_one]
            assert value == pytest.approx(np.mean(each), abs=1e-6)

    def test_it_still_reads_exact_uploads(self, outside):
        """Items j of sgd: every one of them gives the same p."""
        _, transcript = outside(update="sgd", weighting="observed-only")
        view = transcript.view("server")
        view = view.select(view.users[:3])
        one, several = (_columns(Root(solutions=n, answer="any").attack(view, 0)) for n in (1, 3))
        highest = np.where(one[1] == 0, view.manifest.rating_levels[-1], 1.0)
        np.testing.assert_allclose(np.clip(one[3], 0, highest), several[3], atol=1e-5)


def _columns(found):
    """user, kind, index, value of a reconstruction as flat arrays."""
    return [np.concatenate(column) for column in zip(*found.rows(), strict=True)][:4]
