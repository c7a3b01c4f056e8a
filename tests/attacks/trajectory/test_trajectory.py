"""The fit of a client's course: its derivatives, its answers, and where it abstains."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attacks.base import silent
from attacks.client_rules.client_update import step_of
from attacks.trajectory.answers import unexplained
from attacks.trajectory.attack import Trajectory
from attacks.trajectory.differencing import from_differences
from attacks.trajectory.factor_trajectories import batches, pack
from attacks.trajectory.least_squares import fit, fit_start
from attacks.trajectory.normal_equations import Problem, Unknowns, factor_path, normal_equations
from attacks.trajectory.passes import fit_clients
from attacks.trajectory.stretched_ratings import unstretch
from attacks.trajectory.trajectory_model import Fitted, model_of
from audit.factories import make_attack, make_defenses
from audit.scoring.score import score
from audit.scoring.truth import read_truth
from defenses.heterogeneous import Specification, draw
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.protocols.fedmf import FedMF
from victims.recording import record
from victims.training import start
from victims.transcript.beside import truth_path
from victims.transcript.reader import open_transcript
from victims.transcript.recorder import Recorder

VICTIM = DecentralisedMF(factors=5, learning_rate=0.01)


@pytest.fixture(scope="module")
def community():
    """120 users with as few as one rating."""
    return generate(Synthetic(users=120, items=32, ratings_per_user=16.0, single=0.03, seed=2))


@pytest.fixture(scope="module")
def recorded(community, tmp_path_factory):
    """Recordings by defense and rounds, made once."""
    folder, made = tmp_path_factory.mktemp("courses"), {}

    def make(text, rounds=range(10), victim=VICTIM):
        key = text, tuple(rounds), victim
        if key not in made:
            path = folder / str(len(made))
            record(victim, community, path, rounds=rounds, defenses=make_defenses(text), seed=4)
            made[key] = open_transcript(path)
        return made[key]

    return make


def stretched_truth(community, text):
    held = start(VICTIM, community, make_defenses(text), 4).ratings
    return held.matrix().toarray()


def answers(found):
    return tuple(np.concatenate(part) for part in zip(*found.rows(), strict=True))


@pytest.mark.parametrize(
    ("repeated", "loose"), [pytest.param(False, False, marks=pytest.mark.thorough), (True, False)]
)
def test_normal_matrix_is_that_of_automatic_differentiation(repeated, loose):
    """Cost, gradient and Gauss-Newton matrix against plain residuals: fresh noise, noise that repeats, and
    clients whose steps hold something of chance, taken in pieces with factors that the rows do not have.
    """
    rng = np.random.default_rng(0)
    t, n, k = 4, 3, 2
    victim = DecentralisedMF(factors=k, learning_rate=0.1, order="per-rating" if loose else "batch")
    step = step_of(victim.manifest(generate(Synthetic(users=3, items=40)), [0]), np.arange(t), np.array([n]))
    weight = np.full((t, n, k), 1.7) if repeated else rng.uniform(0.5, 2, (t, n, k))
    more = (rng.normal(size=(t, n, k)), rng.uniform(0.5, 2, t - 1)) if loose else (None, None)
    one = Problem(
        *(rng.normal(size=(t, n, k)) for _ in range(2)), weight, *(rng.uniform(0.5, 2, n) for _ in range(3)),
        jnp.asarray(0.3), step._replace(shrink=step.shrink[0]), *more,
    )  # fmt: skip
    one = jax.tree.map(jnp.asarray, one)
    size = k * (t if loose else 1)
    theta = jnp.asarray(rng.normal(size=size + n))

    def residual(theta):
        path, _ = factor_path(one, theta[:size], theta[size:], False)
        error = theta[size:] - jnp.einsum("tk,tnk->tn", path, one.factors)
        left = one.weight * (one.rows - one.row_weight[:, None] * error[:, :, None] * path[:, None, :])
        left = left - left.mean(axis=0) if repeated else left
        mean = jnp.concatenate([jnp.zeros(size), one.mean])
        chance = jnp.repeat(one.step_deviation**-2, k) if loose else jnp.zeros(0)
        prior = jnp.sqrt(jnp.concatenate([jnp.full(k, 0.3), chance, one.precision]))
        return jnp.concatenate([left.ravel(), prior * (theta - mean)])

    slope, value = jax.jit(jax.jacfwd(residual))(theta), jax.jit(residual)(theta)
    found = jax.jit(normal_equations, static_argnums=0)(Unknowns(False, repeated), one, theta)
    np.testing.assert_allclose(found.cost, value @ value / 2, rtol=1e-10)
    np.testing.assert_allclose(found.gradient, slope.T @ value, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.matrix, slope.T @ slope, rtol=1e-9, atol=1e-9)
    held = one._replace(mean=theta[size:], precision=jnp.zeros(n))
    alone = jax.jit(normal_equations, static_argnums=0)(Unknowns(True, repeated), held, theta[:size])
    slope = slope[:, :size]
    np.testing.assert_allclose(alone.gradient, slope.T @ value, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(alone.matrix, slope.T @ slope, rtol=1e-9, atol=1e-9)


class TestNoiseOnce:
    def test_differences_need_no_constants(self, community, recorded):
        """The closed form reads W o R to 1e-6 for at least 99 % of clients with four ratings or more."""
        view = recorded("hdpmf").view("server")
        truth = stretched_truth(community, "hdpmf")
        errors = []
        for members in batches(view, view.rounds.size):
            packed = pack(view, view.batch(members), view.rounds)
            guess = from_differences(packed.rows, packed.factors, packed.row_weight, packed.valid)
            away = np.abs(guess.value - truth[packed.users[:, None], packed.index]) * packed.valid
            errors += away.max(axis=1)[packed.valid.sum(axis=1) >= 4].tolist()
        assert np.mean(np.array(errors) < 1e-6) >= 0.99

    def test_the_attack_reads_everybody(self, community, recorded):
        """Clients with fewer ratings are fitted; the same bar for all together."""
        found = Trajectory(answer="stretched").attack(recorded("hdpmf").view("server"), 0)
        user, _, item, value, _ = answers(found)
        worst = np.zeros(community.n_users)
        np.maximum.at(worst, user, np.abs(value - stretched_truth(community, "hdpmf")[user, item]))
        worst[list(found.abstained)] = np.inf
        assert np.mean(worst < 1e-6) >= 0.99
        assert found.diagnostics["starts"].max() <= 6

    def test_no_constant_of_the_step_is_needed(self, community, recorded):
        view = recorded("hdpmf").view("server")
        silent = replace(view, manifest=view.manifest.model_copy(update={"hyperparameters": {}}))
        user, _, item, value, _ = answers(Trajectory(answer="stretched").attack(silent, 0))
        away = np.abs(value - stretched_truth(community, "hdpmf")[user, item])
        assert user.size > 0.95 * community.n_ratings
        assert np.mean(away < 1e-6) > 0.99

    @pytest.mark.thorough
    def test_float32_recordings(self, community, recorded):
        view = recorded("hdpmf").view("server")
        view = view.select(view.users[:24])
        single = tuple(part.astype(np.float32) for part in view.messages.gradient)
        view = replace(view, messages=replace(view.messages, gradient=single))
        user, _, item, value, _ = answers(Trajectory(answer="stretched").attack(view, 0))
        away = np.abs(value - stretched_truth(community, "hdpmf")[user, item])
        assert np.median(away) < 1e-3

    @pytest.mark.thorough
    def test_shuffled_uploads_fit_nothing(self, recorded):
        transcript = recorded("hdpmf")
        view = transcript.view("server")
        found = Trajectory(starts=1, steps=20).attack(view.select(view.users[:40]).shuffled(0), 0)
        for row in score(found, transcript.manifest, read_truth(truth_path(transcript.path))):
            if not row.metric.startswith(("rated_set", "tpr")):
                assert row.summary.verdict != "LEAK"

    def test_ratings_follow_from_the_grid_and_the_rank_one_weights(self, recorded):
        transcript = recorded("hdpmf")
        found = make_attack("trajectory").attack(transcript.view("server"), 0)
        rows = score(found, transcript.manifest, read_truth(truth_path(transcript.path)))
        read = next(row for row in rows if row.metric == "rated_rating_accuracy")
        assert read.summary.value > 0.9
        assert read.summary.verdict == "LEAK"


class TestOtherProtocols:
    def test_likelihood_knows_no_law_of_stretched_uploads(self, community, recorded):
        found = make_attack("likelihood").attack(recorded("hdpmf").view("server"), 0)
        assert len(found.abstained) == community.n_users
        assert "objective-noise" in found.abstained[0] or "stretching" in found.abstained[0]

    def test_fedmf(self, community, recorded):
        view = recorded("none", victim=FedMF(factors=5)).view("server")
        user, _, item, value, _ = answers(Trajectory().attack(view, 0))
        assert np.mean(value == community.matrix().toarray()[user, item]) > 0.99

    @pytest.mark.thorough
    def test_personalized_sampling_leaves_what_was_sampled_open(self, community, recorded):
        user, _, item, value, _ = answers(Trajectory().attack(recorded("pdpmf").view("server"), 0))
        actual = community.matrix().toarray()[user, item]
        assert 0.2 < user.size / community.n_ratings < 0.9
        assert np.mean(value == actual) > 0.97


class TestFreshNoise:
    @pytest.mark.thorough
    def test_normal_noise_of_a_known_scale(self, community, recorded):
        """As sure as it says, under the defense ``gaussian``."""
        view = recorded("gaussian:sigma=0.5").view("server")
        found = fit_clients(view, model(view), 0, silent)
        truth = community.matrix().toarray()
        away = [part.value - truth[part.users[:, None], part.index] for part in found]
        score_ = np.concatenate([(a / p.deviation)[p.valid] for a, p in zip(away, found, strict=True)])
        assert np.quantile(np.abs(score_), 0.68) == pytest.approx(1.0, abs=0.2)

    @pytest.mark.thorough
    def test_reads_at_little_noise_and_abstains_at_much(self, community, recorded):
        verdicts, silent = {}, {}
        for epsilon in (100, 0.01):
            transcript = recorded(f"objective-noise:noise=fresh,epsilon={epsilon}")
            found = make_attack("trajectory").attack(transcript.view("server"), 0)
            silent[epsilon] = len(found.abstained)
            rows = score(found, transcript.manifest, read_truth(truth_path(transcript.path)))
            verdicts[epsilon] = next(r for r in rows if r.metric == "rated_rating_accuracy").summary.verdict
        assert verdicts[100] == "LEAK"
        assert verdicts[0.01] == "NO EVIDENCE"
        # h is near 0 for some items, so that a few clients are left with something
        assert silent[100] <= 0.05 * community.n_users  # fits that end beside the best one are seen as such
        assert silent[0.01] > 0.9 * community.n_users
        answered = np.concatenate([part[0] for part in found.rows()])
        assert not np.isin(answered, list(found.abstained)).any()

    def test_noise_declared_with_scale_0(self, community, recorded):
        """A program that switched its noise off and says so: there is nothing to divide by."""
        view = recorded("objective-noise:noise=fresh,epsilon=40").view("server")
        quiet = {
            t: replace(told, noise_scale=np.zeros_like(told.noise_scale))
            for t, told in view.broadcasts.items()
        }
        view = replace(view, broadcasts=quiet)
        with np.errstate(divide="raise", invalid="raise"):
            packed = pack(view, view.batch(next(iter(batches(view, view.rounds.size)))), view.rounds)
        assert (packed.deviation > 0).all()

    def test_huge_uploads_of_one_client_change_nobody_elses_fit(self, recorded):
        view = recorded("objective-noise:noise=fresh,epsilon=40").view("server")
        members = next(iter(batches(view, view.rounds.size)))
        chunks = zip(view.messages.sender, view.messages.gradient, strict=True)
        loud = [np.where(sender[:, None] == members[0], rows * 1e12, rows) for sender, rows in chunks]
        louder = replace(view, messages=replace(view.messages, gradient=loud))
        before, after = (pack(one, one.batch(members), one.rounds) for one in (view, louder))
        assert np.array_equal(before.deviation[1:], after.deviation[1:])
        assert (after.deviation[0] >= before.deviation[0]).all()
        assert after.deviation[0].max() > before.deviation[0].max()

    @pytest.mark.thorough
    def test_the_start_alone(self, community, recorded):
        """``fit_start`` ends where ``fit`` does with ratings that a sharp prior fixes."""
        view = recorded("objective-noise:noise=fresh,epsilon=40").view("server")
        members = next(iter(batches(view, view.rounds.size)))[:4]
        packed = pack(view, view.batch(members), view.rounds)
        known = community.matrix().toarray()[packed.users[:, None], packed.index] * packed.valid
        problem = Problem(
            *(jnp.asarray(part) for part in (packed.rows, packed.factors,
              packed.valid[:, None, :, None] / packed.deviation, packed.row_weight, known)),
            jnp.full(known.shape, 1e8), jnp.asarray(1.0),
            step_of(view.manifest, view.rounds, packed.valid.sum(axis=1)),
        )  # fmt: skip
        begin = jnp.full((4, 5), 0.1)
        _, alone = fit_start(problem, begin, repeated=False, steps=50)
        both = fit(problem, begin, problem.mean, repeated=False, steps=50)
        np.testing.assert_allclose(alone, both.cost, rtol=1e-4)


def model(view):
    return model_of(view, max_rounds=12, n_starts=5, max_steps=100)


class TestStretched:
    def test_weights_and_ratings(self, community):
        deviation, bar = 0.02, 0.9
        weights = draw(Specification(), community, 0).of(community)
        rng = np.random.default_rng(0)
        value = weights * community.values + deviation * rng.standard_normal(weights.size)
        levels = np.array(community.levels)
        found = unstretch(community.users, community.items, value, np.full(value.size, deviation), levels)
        assert np.mean(levels[found.posterior.argmax(axis=1)] == community.values) > bar

    @pytest.mark.thorough
    def test_half_stars(self, community):
        levels = np.arange(1, 11) / 2
        rng = np.random.default_rng(0)
        ratings = rng.choice(levels[3:], community.n_ratings)
        weights = draw(Specification(), community, 0).of(community)
        found = unstretch(
            community.users, community.items, weights * ratings, np.full(ratings.size, 1e-9), levels
        )
        assert np.mean(levels[found.posterior.argmax(axis=1)] == ratings) > 0.9


class TestWhereItDoesNotApply:
    @pytest.mark.parametrize(
        ("rounds", "defense", "why"),
        [([3], "none", "two rounds in a row"), ([1, 3], "none", "two rounds in a row"),
         ([1, 2], "laplace:scale=1", "no law of the uploads under laplace"),
         ([1, 2], "gaussian:clip=1", "rows are clipped"), ([1, 2], "gaussian:known=false", "tell the scale"),
         ([1, 2], "gaussian+objective-noise", "normal noise above other noise")],
    )  # fmt: skip
    def test_reasons(self, recorded, rounds, defense, why):
        found = Trajectory().attack(recorded(defense, rounds).view("server"), 0)
        assert all(why in reason for reason in found.abstained.values())
        assert len(found.abstained) == found.users.size

    def test_unknown_constants_and_steps(self, transcripts, recorded):
        view = transcripts["semi-als", "observed-only"].view("server")
        assert "step" in next(iter(Trajectory().attack(view, 0).abstained.values()))

    @pytest.mark.parametrize("residual", [np.inf, np.nan, 0.3])
    def test_a_fit_that_diverges_is_called_so(self, recorded, residual):
        """Before: "the best leaves inf of their size"."""
        view = recorded("none", [1, 2, 3]).view("server")
        model = model_of(view, max_rounds=4, n_starts=1, max_steps=1)
        table = np.zeros((1, 1))
        nobody = np.zeros((1, 1), np.int64)
        fit = Fitted(
            np.array([7]), nobody, nobody, np.ones((1, 1), bool), np.array([True]), table, table,
            np.zeros((1, 2)), np.zeros((1, 0, 2)), table, np.array([residual]), np.array([1]),
            np.array([False]), np.array([False]),
        )  # fmt: skip
        (reason,) = unexplained(model, fit).values()
        finite = np.isfinite(residual)
        assert ("leaves 0.3 of their size" if finite else "numbers that are not finite") in reason

    @pytest.mark.parametrize("option", [{"rounds": 1}, {"starts": 0}, {"steps": 0}, {"answer": "all"}])
    def test_bad_options(self, option):
        with pytest.raises(InputError, match=next(iter(option))):
            make_attack("trajectory", option)


def test_a_wrong_declaration_under_normal_noise_bounds_nothing(tmp_path):
    """Rate or scale far too large: nobody is explained. Before: as if noise alone were there."""
    rate, scale = 0.025, 5.0
    rule = {"rule": "sgd", "order": "batch", "local_steps": 1, "batch_size": "all", "reduction": "sum"}
    rule |= {"upload": "gradient", "loss": "squared", "link": "identity", "clip": "none", "start": "kept"}
    constants = {"upload_scale": 1.0, "upload_regularization": 0.0}
    constants |= {"client_learning_rate": rate, "lambda_factors": 0.02}
    rng = np.random.default_rng(0)
    p, q = rng.normal(0, 0.4, (12, 3)), rng.normal(0, 0.4, (30, 3))
    noise = [{"name": "gaussian", "scale": scale}]
    rated, stars = [rng.permutation(30)[:12] for _ in p], rng.integers(1, 6, (12, 12))
    with Recorder(
        tmp_path / "wrong", rating_levels=range(1, 6), rule=rule, constants=constants, defenses=noise
    ) as recorder:
        for round_ in range(3):
            recorder.broadcast(round_, q)
            for user, items in enumerate(rated):
                error = stars[user] - q[items] @ p[user]
                rows = error[:, None] * p[user] + rng.normal(0, 0.2, (12, 3))
                recorder.upload(round_, user, rows, items)
                p[user] += 0.05 * (error @ q[items] - 0.02 * p[user])
    found = Trajectory().attack(open_transcript(tmp_path / "wrong").view("server"), 0)
    assert len(found.abstained) == 12
    assert not found.applies


def test_few_ratings_agree_with_a_rule_that_others_contradict(tmp_path):
    """Ratings less 3, undeclared: rows of two ratings fit all the same, and six were answered wrongly."""
    centre, answered = 0.0, 20
    rule = {"rule": "sgd", "order": "batch", "local_steps": 1, "batch_size": "all", "reduction": "sum"}
    rule |= {"upload": "gradient", "loss": "squared", "link": "identity", "clip": "none", "start": "kept"}
    constants = {"upload_scale": 1.0, "upload_regularization": 0.0}
    constants |= {"client_learning_rate": 0.01, "lambda_factors": 0.0}
    noise = [{"name": "gaussian", "scale": 0.1}]
    rng = np.random.default_rng(0)
    p, q = rng.normal(0, 0.5, (20, 3)), rng.normal(0, 0.5, (30, 3))
    rated = [rng.permutation(30)[: 12 if user < 12 else 2] for user in range(20)]
    learned = [rng.integers(1, 6, items.size) - centre for items in rated]
    with Recorder(
        tmp_path / "run", rating_levels=range(1, 6), rule=rule, constants=constants, defenses=noise
    ) as recorder:
        for round_ in range(3):
            recorder.broadcast(round_, q)
            for user, items in enumerate(rated):
                error = learned[user] - q[items] @ p[user]
                rows = error[:, None] * p[user] + rng.normal(0, 0.1, (items.size, 3))
                recorder.upload(round_, user, rows, items)
                p[user] += 0.02 * error @ q[items]
    found = Trajectory().attack(open_transcript(tmp_path / "run").view("server"), 0)
    assert found.users.size - len(found.abstained) == answered
