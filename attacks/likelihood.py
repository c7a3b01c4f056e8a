"""The most likely ratings and attributes behind noisy uploads, all rounds together, all clients at once.

Beyond paper 000, whose noise procedure averages root solutions of one round (its section 6.2): the law of
the noise is known, ratings lie on a grid, attributes are one-hot, and ratings do not change between
rounds. The attack maximises the marginal likelihood of all uploads over the client's factor and reads
each rating off its posterior (``attacks.softdecode``), with a prior that it estimates from the same
uploads (``attacks.prior``; ``prior="flat"`` is maximum likelihood). Several starts: the prior's mean, the
leading direction of the rows with the best length on a grid, and the best point so far moved by one
rating level; the one with the most evidence wins, client by client.

What it assumes: independent Laplace noise on every coordinate, drawn afresh in each round; its scale is
read from the manifest or estimated. Without the constants of the update rule every round's factor is free
(less is read); without alpha it abstains in include-unrated. Uploads that noise alone explains as well
are abstained on. Where the rows have no noise to speak of, the closed form (``attacks.spectral``) is the
maximum, and its answer is given.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from attacks import prior as priors
from attacks import softdecode as soft
from attacks.interface import Estimates, Progress, Reconstruction, silent, unreadable
from attacks.packing import Packing, Public, Rows, pack, plan
from attacks.spectral import Spectral
from victims.manifest import Manifest
from victims.view import ATTRIBUTE, View

CLEAN = 1e-5  # rows whose part off their leading direction is below this share have no noise
CACHE_BYTES = 1 << 30
MIDDLES = (0.4, 0.55, 0.7, 0.85)  # of the grid: candidates for the mean rating
UNRATED = 0.9
DEFAULTS = {"lambda_attributes": 1.0, "lambda_factors": 10.0, "client_learning_rate": 0.0, "alpha": 0.1}
LENGTHS = np.geomspace(0.03, 30.0, 40)  # of the client's factor, tried along the leading direction
LEAST_ODDS = 3.0  # nats by which the model must beat noise alone, over all clients
HOT = 10.0


@dataclass(frozen=True)
class Likelihood:
    """Hyper-parameters of the attack.

    Attributes
    ----------
    prior : "estimated" or "flat"
        Maximum a posteriori with a prior estimated from the uploads, or maximum likelihood.
    scale : float or None
        Laplace scale b of the uploads, if the adversary knows better than the manifest.
    steps : int
        Newton steps of a cold start; later passes take a third of them.
    passes : int
        Estimates of the prior.
    learners : int
        Clients on which starts of the prior and unknown constants are tried.
    samples : int
        Draws of the client's factor over which posteriors are averaged.
    """

    prior: Literal["estimated", "flat"] = "estimated"
    scale: float | None = None
    steps: int = 30
    passes: int = 4
    learners: int = 256
    samples: int = 12
    name: str = "likelihood"

    def __post_init__(self) -> None:
        rules = {
            "prior": (self.prior in ("estimated", "flat"), "estimated or flat"),
            "scale": (self.scale is None or 0 <= self.scale < np.inf, ">= 0"),
            "steps": (self.steps >= 3, ">= 3"),
            "passes": (self.passes >= 1, ">= 1"),
            "learners": (self.learners >= 1, ">= 1"),
            "samples": (self.samples >= 1, ">= 1"),
        }
        for name, (holds, rule) in rules.items():
            if not holds:
                raise ValueError(f"likelihood {name} must be {rule}, got {getattr(self, name)!r}")

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Read all clients of a view, all its rounds together.

        Parameters
        ----------
        view : View
        key : int
            Seed of the draws and of the choice of learners.
        progress : callable

        Returns
        -------
        Reconstruction
            ``value`` is the most probable rating (0 for unrated) or the probability that an attribute is
            active; ``probability`` that the rounded value is right. Diagnostics: ``evidence`` against
            noise alone (nats) and ``length`` (mean norm of p_i, stars).
        """
        options: dict[str, Any] = {**asdict(self), "seed": key}
        obstacle = unreadable(view)
        if obstacle:
            everybody = {int(user): obstacle for user in view.users}
            return Reconstruction(self.name, view.users, (), everybody, options)
        size = _size_up(view)
        unusable = {int(user): reason for user, reason in size.unusable.items()}
        if size.off_share < CLEAN:
            closed = Spectral().attack(view, key, progress)
            if len(closed.abstained) < closed.users.size:
                return _renamed(self.name, closed, options)
        users = np.setdiff1d(view.users, list(unusable))
        if users.size == 0:
            return Reconstruction(self.name, view.users, (), unusable, options)
        job = _prepare(self, view.select(users) if unusable else view, size, key)
        return _run(job, view.users, unusable, options, progress)


def _renamed(name: str, closed: Reconstruction, options: dict[str, Any]) -> Reconstruction:
    """The closed form's answer as this attack's: without noise it is certain."""
    blocks = tuple(
        replace(block, probability=np.where(np.isnan(block.value), np.nan, 1.0)) for block in closed.blocks
    )
    options = {**options, "closed_form": True}
    return Reconstruction(name, closed.users, blocks, closed.abstained, options, {})


class _Size(NamedTuple):
    """off_share: root of the rows' energy off their leading direction, over all of it; scale: the Laplace
    scale that this part would have; unusable: clients that no attack can read, and why."""

    off_share: float
    scale: float
    unusable: dict[int, str]


def _size_up(view: View) -> _Size:
    off = energy = freedom = 0.0
    unusable = {}
    k = view.manifest.factors
    for batch in view.batches():
        for uploads in batch.rounds:
            rows = uploads.gradients.astype(np.float64)
            if view.manifest.upload.regularization != 0:
                own = uploads.broadcast.factors[uploads.position] * view.manifest.upload.regularization
                rows = np.where(uploads.valid[..., None], rows - own, 0)
            with np.errstate(over="ignore", invalid="ignore"):
                gram = np.matmul(rows.transpose(0, 2, 1), rows)
            finite = np.isfinite(gram).all(axis=(1, 2)) & (np.abs(gram).max(axis=(1, 2)) < 1e200)
            values = np.linalg.eigvalsh(np.where(finite[:, None, None], gram, 0))
            total = values.sum(axis=1)
            for user in batch.users[~finite]:
                unusable[int(user)] = "the uploaded numbers are too large to square"
            count = np.broadcast_to(uploads.valid, rows.shape[:2]).sum(axis=1)
            off += float(np.maximum(total - values[:, -1], 0).sum())
            energy += float(total.sum())
            freedom += float((np.maximum(count[finite] - 1, 0) * (k - 1)).sum())
    if energy == 0:
        unusable |= {
            int(user): "all uploaded rows are zero" for user in view.users if int(user) not in unusable
        }
    variance = off / freedom if freedom else energy / max(view.messages.n_rows * k, 1)
    scale = float(np.sqrt(variance / 2)) / abs(view.manifest.upload.scale)
    share = float(np.sqrt(off / energy)) if energy and freedom else (1.0 if energy else 0.0)
    return _Size(share, scale, unusable)


def known_scale(manifest: Manifest) -> float | None:
    """Scale b of Laplace noise that the adversary is taken to know, in the units of the uploads."""
    for defense in manifest.defenses:
        if defense.get("name") == "laplace":
            scale = defense.get("scale")
            if isinstance(scale, int | float) and not isinstance(scale, bool) and 0 < scale < np.inf:
                return float(scale)
    return None


@dataclass(frozen=True)
class _Job:
    """One view on its way: what is fixed (above) and what is learned (below).

    known_noise: b is not estimated; floor: the smallest b that an estimate may reach.
    """

    attack: Likelihood
    view: View
    packing: Packing
    layer: soft.Layer
    key: int
    known_noise: bool
    floor: float
    cache: dict[int, Rows]
    constants: soft.Constants
    prior: soft.Prior
    spread: priors.Spread

    @property
    def public(self) -> Public:
        return self.packing.public

    def rows(self, number: int) -> Rows:
        """A batch, kept in memory while all of them are small."""
        if number in self.cache:
            return self.cache[number]
        packing = self.packing
        rows = pack(
            self.view, packing, packing.members[number], packing.sizes[number], packing.widths[number]
        )
        if sum(part.items.nbytes for part in self.cache.values()) + rows.items.nbytes < CACHE_BYTES:
            self.cache[number] = rows
        return rows

    def prior_of(self, number: int) -> soft.Prior:
        """The prior of a batch's clients."""
        return self.prior._replace(user=self.prior.user[self.packing.members[number]])


def _prepare(attack: Likelihood, view: View, size: _Size, key: int) -> _Job:
    manifest = view.manifest
    known = dict(manifest.hyperparameters)
    scale = attack.scale if attack.scale is not None else known_scale(manifest)
    if scale is not None:
        scale /= abs(manifest.upload.scale)
    floor = max(
        1e-3 * size.scale, 1e-6 * size.scale / max(size.off_share, 1e-300) if size.scale else 0, 1e-12
    )
    noise = size.scale if scale is None else scale
    values = [known.get(name, default) for name, default in DEFAULTS.items()]
    constants = soft.Constants(*(jnp.asarray(value, jnp.float64) for value in (*values, max(noise, floor))))
    packing = plan(view)
    return _build(attack, view, packing, constants, key, floor, scale is not None)


def _build(
    attack: Likelihood,
    view: View,
    packing: Packing,
    constants: soft.Constants,
    key: int,
    floor: float,
    known_noise: bool,
) -> _Job:
    """A job before anything was learned."""
    manifest = view.manifest
    needed = {"lambda_factors"} | ({"lambda_attributes"} if manifest.n_attributes else set())
    public = needed <= set(manifest.hyperparameters)
    tied = manifest.update == "semi-als" and public and float(constants.lambda_factors) > 0
    linked = manifest.update == "sgd" and public and "client_learning_rate" in manifest.hyperparameters
    layer = soft.layer(manifest, view.rounds, tied=tied, linked=linked)
    n_lam = manifest.factors if tied else layer.n_runs * manifest.factors
    prior = priors.flat(layer, view.users.size, packing.item_ids.size, n_lam)
    return _Job(
        attack,
        view,
        packing,
        layer,
        key,
        known_noise,
        floor,
        {},
        constants,
        prior,
        priors.start_spread(),
    )


def _hot(job: _Job, number: int) -> soft.Point:
    """The better of two starts, client by client, after an annealed climb."""
    rows, prior, layer = job.rows(number), job.prior_of(number), job.layer
    steps, heat = job.attack.steps, jnp.asarray(HOT)
    first = soft.start_from_prior(layer, job.public, rows, job.constants, prior)
    starts = [(first, heat)]
    direction = _direction(rows)
    lengths = np.concatenate([-LENGTHS[::-1], LENGTHS])
    blurred = job.constants._replace(noise=job.constants.noise * 2)
    fit = np.asarray(soft.line(layer, job.public, rows, blurred, prior, direction, lengths))
    best = lengths[np.nan_to_num(fit, nan=-np.inf).argmax(axis=0)][:, None] * direction
    starts.append((jnp.broadcast_to(best[:, None], first.shape), jnp.asarray(3.0)))
    points = []
    for p, warmth in starts:
        point = soft.Point(p, _lam(layer, p))
        points.append(soft.climb(layer, job.public, rows, job.constants, prior, point, steps, warmth))
    return _better(job, number, points)


def _lam(layer: soft.Layer, p: jnp.ndarray) -> jnp.ndarray:
    if layer.tied:
        return jnp.zeros((p.shape[0], p.shape[2]))
    first = [layer.runs.index(run) for run in range(layer.n_runs)]
    return p[:, jnp.array(first)].reshape(p.shape[0], -1)


def _direction(rows: Rows) -> Float[np.ndarray, "users K"]:
    """Leading right singular vector of each client's rows of all rounds."""
    gram = np.einsum("utrk,utrl->ukl", rows.items, rows.items)
    gram += np.einsum("utak,utal->ukl", rows.attributes, rows.attributes)
    return np.linalg.eigh(gram)[1][..., -1]


def _evidence(job: _Job, number: int, point: soft.Point) -> np.ndarray:
    found = _summarise(job, number, point, 1)
    return np.nan_to_num(np.asarray(found.evidence), nan=-np.inf)


def _better(job: _Job, number: int, points: list[soft.Point]) -> soft.Point:
    """Of several points the one with the most evidence, client by client."""
    evidence = np.stack([_evidence(job, number, point) for point in points])
    best = evidence.argmax(axis=0)
    everyone = np.arange(best.size)
    return soft.Point(*(jnp.stack(parts)[best, everyone] for parts in zip(*points, strict=True)))


def _summarise(job: _Job, number: int, point: soft.Point, samples: int) -> soft.Summary:
    return soft.summarise(
        job.layer,
        job.public,
        job.rows(number),
        job.constants,
        job.prior_of(number),
        point,
        jnp.asarray(job.spread.user),
        samples,
        jax.random.fold_in(jax.random.key(job.key), number),
    )


def _pass(job: _Job, points: list[soft.Point] | None) -> tuple[list[soft.Point], soft.Summary]:
    """Climb in every batch; sums over the clients come back as one summary."""
    out, total = [], None
    for number in range(len(job.packing.members)):
        if points is None:
            point = _hot(job, number)
        else:
            point = soft.climb(
                job.layer,
                job.public,
                job.rows(number),
                job.constants,
                job.prior_of(number),
                points[number],
                max(3, job.attack.steps // 3),
                jnp.asarray(1.0),
            )
        found = _summarise(job, number, point, min(4, job.attack.samples))
        out.append(point)
        total = _added(job, number, total, found)
    assert total is not None
    return out, total


def _added(job: _Job, number: int, total: soft.Summary | None, part: soft.Summary) -> soft.Summary:
    """Sum what is summed over clients; scatter what belongs to one."""
    members, size = job.packing.members[number], job.packing.sizes[number]

    def scattered(values: jnp.ndarray) -> jnp.ndarray:
        out = np.zeros((job.view.users.size, *values.shape[1:]))
        out[members[:size]] = np.asarray(values)[:size]
        return jnp.asarray(out)

    part = part._replace(
        moments=part.moments._replace(user=scattered(part.moments.user)),
        evidence=scattered(part.evidence),
        blank=scattered(part.blank),
        answers=soft.Answers(jnp.zeros((0, 0, 0)), jnp.zeros((0, 0))),
    )
    return part if total is None else jax.tree.map(lambda a, b: a + b, total, part)


def _learned(job: _Job, total: soft.Summary) -> _Job:
    """New prior and noise scale after a pass."""
    n_users = job.view.users.size
    prior, spread, constants = job.prior, job.spread, job.constants
    if job.attack.prior == "estimated":
        prior, spread = priors.improve(job.layer, prior, spread, total.moments, n_users)
    if not job.layer.tied:
        prior = prior._replace(**_start_law(job, total, n_users))
    if not job.known_noise:
        noise = float(total.distance) / max(float(total.coordinates), 1.0)
        constants = constants._replace(noise=jnp.asarray(max(noise, job.floor)))
    return replace(job, prior=prior, spread=spread, constants=constants)


def _start_law(job: _Job, total: soft.Summary, n_users: int) -> dict[str, jnp.ndarray]:
    """Normal law of the clients' free factors; one inverse Wishart count of N(0, 1) keeps it proper."""
    k = job.view.manifest.factors
    n_runs = job.layer.n_runs
    mean = np.asarray(total.lam_mean) / n_users
    square = np.asarray(total.lam_square) / n_users - np.outer(mean, mean)
    precision = np.zeros_like(square)
    for run in range(n_runs):
        part = slice(run * k, (run + 1) * k)
        covariance = (n_users * square[part, part] + (k + 2) * np.eye(k)) / (n_users + k + 2)
        precision[part, part] = np.linalg.inv(covariance)
    return {"start_mean": jnp.asarray(mean), "start_precision": jnp.asarray(precision)}


def _learn(job: _Job, points: list[soft.Point] | None, passes: int) -> tuple[_Job, list[soft.Point], float]:
    """Passes of climbing and estimating; keeps the state with the most evidence."""
    best: tuple[float, _Job, list[soft.Point]] | None = None
    for number in range(passes):
        points, total = _pass(job, points)
        cost = priors.penalty(job.layer, job.prior, job.spread, total.moments)
        # evidence under different noise scales is comparable with its own constant only
        norm = float(total.coordinates) * np.log(2 * float(job.constants.noise))
        value = float(np.sum(total.evidence)) - cost - norm
        if best is None or (np.isfinite(value) and value > best[0]):
            best = value, job, points
        if number < passes - 1:
            job = _learned(job, total)
    assert best is not None
    assert points is not None
    return best[1], best[2], best[0]


def _search(job: _Job) -> tuple[_Job, list[soft.Point]]:
    """The middle of the rating law from which the passes end with the most evidence."""
    if job.attack.prior == "flat":
        learned, points, _ = _learn(job, None, 1 if job.known_noise else 3)
        return learned, points
    best = None
    for middle in MIDDLES:
        level = jnp.asarray(priors.bell(job.layer, middle, UNRATED))
        start = replace(job, prior=job.prior._replace(level=level))
        learned, points, value = _learn(start, None, job.attack.passes)
        if best is None or value > best[2]:
            best = learned, points, value
    assert best is not None
    return best[0], best[1]


def _carried(job: _Job, learned: _Job) -> _Job:
    """What some clients taught, for all of them: the clients' own tilts start anew."""
    n_users = job.view.users.size
    place = np.searchsorted(job.packing.item_ids, learned.packing.item_ids)
    item = np.zeros((job.packing.item_ids.size, 2))
    item[place] = np.asarray(learned.prior.item)
    prior = learned.prior._replace(user=jnp.zeros((n_users, 2)), item=jnp.asarray(item))
    return replace(job, prior=prior, spread=learned.spread, constants=learned.constants)


def _jump(job: _Job, number: int, point: soft.Point) -> soft.Point:
    """Try all ratings one level higher or lower: p and the ratings can move together."""
    rows, prior, layer = job.rows(number), job.prior_of(number), job.layer
    levels = np.array(job.view.manifest.rating_levels)
    unit = float(np.median(np.diff(levels))) if levels.size > 1 else 1.0
    shift = soft.shift_of_one(layer, job.public, rows)
    for sign in (1, -1):
        p = point.p + sign * unit * shift
        lam = jnp.zeros_like(point.lam) if layer.tied else _lam(layer, p)
        moved = soft.climb(
            layer,
            job.public,
            rows,
            job.constants,
            prior,
            soft.Point(p, lam),
            max(3, job.attack.steps // 2),
            jnp.asarray(1.0),
        )
        point = _better(job, number, [point, moved])
    return point


def _run(
    job: _Job, everyone: np.ndarray, unusable: dict[int, str], options: dict[str, Any], progress: Progress
) -> Reconstruction:
    """Learn on some clients, then read all of them."""
    attack, view = job.attack, job.view
    n_users = view.users.size
    learners = view
    if n_users > attack.learners:
        rng = np.random.default_rng([job.key, 4])
        learners = view.select(np.sort(rng.choice(view.users, attack.learners, replace=False)))
    school = (
        job
        if learners is view
        else _build(attack, learners, plan(learners), job.constants, job.key, job.floor, job.known_noise)
    )
    school, points = _search(school)
    if learners is view:
        job = school
    else:
        job = _carried(job, school)
        job, points, _ = _learn(job, None, 1 if attack.prior == "flat" else 3)
    blocks, evidence, length = [], np.zeros(n_users), np.zeros(n_users)
    done = 0
    for number in range(len(job.packing.members)):
        point = _jump(job, number, points[number])
        found = _summarise(job, number, point, attack.samples)
        members, size = job.packing.members[number], job.packing.sizes[number]
        evidence[members[:size]] = np.asarray(found.evidence - found.blank)[:size]
        length[members[:size]] = np.linalg.norm(np.asarray(point.p), axis=-1).mean(axis=1)[:size]
        blocks.append(_estimates(job, number, found))
        done += size
        progress(done, n_users)
    options = options | {"noise": float(job.constants.noise)}
    abstained = dict(unusable)
    total = float(np.sum(evidence))
    for user, odds in zip(view.users, evidence, strict=True):
        if not total > LEAST_ODDS:
            abstained[int(user)] = "the uploads of all clients together cannot be told from noise alone"
        elif not odds > -LEAST_ODDS:
            abstained[int(user)] = "noise alone explains this client's uploads better than any rating does"
    silenced = np.array(sorted(abstained), np.int64)
    for block in blocks:
        block.value[np.isin(block.users, silenced)] = np.nan
    order = {"evidence": evidence, "length": length}
    diagnostics = {}
    for name, values in order.items():
        full = np.full(everyone.size, np.nan)
        full[np.searchsorted(everyone, view.users)] = values
        diagnostics[name] = full
    return Reconstruction(attack.name, everyone, tuple(blocks), abstained, options, diagnostics)


def _estimates(job: _Job, number: int, found: soft.Summary) -> Estimates:
    rows, size = job.rows(number), job.packing.sizes[number]
    users = job.view.users[job.packing.members[number][:size]]
    items = np.asarray(found.answers.items)[:size]
    attributes = np.asarray(found.answers.attributes)[:size]
    valid = rows.valid[:size]
    n_slots, n_attributes = valid.shape[1], attributes.shape[1]
    sent = rows.attributes_sent[:size].any(axis=1)
    answer = np.array(job.layer.levels)[items.argmax(axis=-1)]
    value = np.concatenate([np.where(valid, answer, np.nan), np.where(sent, attributes, np.nan)], axis=1)
    sure = np.concatenate([items.max(axis=-1), np.maximum(attributes, 1 - attributes)], axis=1)
    index = np.zeros((size, n_slots + n_attributes), np.int32)
    index[:, :n_slots] = job.packing.item_ids[rows.item[:size]] if job.packing.item_ids.size else 0
    index[:, n_slots:] = np.arange(n_attributes)
    kind = np.zeros((1, n_slots + n_attributes), np.int8)
    kind[:, n_slots:] = ATTRIBUTE
    return Estimates(
        users.astype(np.int32), kind, index, value, np.where(np.isnan(value), np.nan, np.clip(sure, 0, 1))
    )
