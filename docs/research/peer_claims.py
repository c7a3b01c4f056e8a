"""Sentences of Duriakova et al. 2019 and Yang et al. 2022, each with adversary, number and verdict.

    python docs/research/peer_claims.py DATA [--users N] [--receivers N] [--seed N] [--parts]

A sentence is tested by what several receivers read, one after the other, drawn with a seed. ``number`` is the
mean over receivers, beside the best guess of the same clients; ``advantage`` is their difference with a
bootstrap interval (95 %) over receivers. "told U" is the share of a round's ratings that
whoever is told each sender's factor before the round, and has its own V alone, rounds to the right level; an
attack that follows U from row to row may read more. Verdict: the sentence does not hold where the interval
lies above 0; where it does not, nothing was shown against it.

"Personal parts stay local" is tested by adding up -theta times the rows that a receiver got from round 0 on:
the number is the share of the personal part (of its squared length) that this tells, and guessing nothing
tells 0. ``--parts`` prints nothing but a table of that, of all users and rounds: |summed - true| / |true| of
the personal parts v_q and z_q, over all users and items about which anything was sent.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import expit

import factorleak as fl
from audit.factories import make_victim
from audit.scoring.truth import read_factors
from victims.data.loaders import load
from victims.data.ratings import Ratings
from victims.data.subsets import of_users
from victims.protocols.cofactor_draws import in_stars
from victims.protocols.cofactor_round import Copies, at, key_of
from victims.protocols.dpmf_yang import DPMFYang
from victims.recording import record
from victims.training import start
from victims.transcript.beside import factors_path
from victims.transcript.reader import open_transcript
from victims.transcript.recorded import Transcript
from victims.transcript.view import ITEM, View

ROUNDS = [0, 1, 2]
DRAWS = 2000  # of receivers, for an interval
SUMMED = (1, 3, 10)  # rounds after which ``--parts`` compares
PARTS = ("personal parts start", "watched from round", "to round", "error of v_q", "error of z_q")


class Claim(NamedTuple):
    """A sentence and what tests it: victim and options, attack, metric."""

    sentence: str
    victim: str
    options: dict[str, str]
    adversary: str
    attack: str
    metric: str


ONE_WAY = "003: one-way anonymous communication protects rating behaviour well"
NON_PRIVATE = "004: only non-private information is exchanged"
PDMFREC, YANG = {"factors": "6", "init_scale": "1"}, {"factors": "4"}
CLAIMS = [
    Claim(ONE_WAY, "pdmfrec", PDMFREC, "one neighbour", "peers", "claimed_rating_accuracy"),
    Claim(ONE_WAY, "pdmfrec", PDMFREC, "one neighbour", "peers", "link_precision"),
    Claim(ONE_WAY, "pdmfrec", PDMFREC, "one neighbour", "peers-named", "rating_accuracy"),
    Claim(ONE_WAY, "pdmfrec", PDMFREC, "one neighbour", "peers-lists", "rated_set_auc"),
    Claim(ONE_WAY, "pdmfrec", PDMFREC, "three neighbours", "peers-named", "rating_accuracy"),
    Claim(NON_PRIVATE, "dpmf-yang", YANG, "one neighbour", "cofactors", "rating_accuracy"),
    Claim(NON_PRIVATE, "dpmf-yang", YANG, "one neighbour", "cofactors-lists", "rated_set_auc"),
    Claim(NON_PRIVATE, "dmf", YANG, "one neighbour", "peers", "rating_accuracy"),
]


def main(data: str, users: int, receivers: int, seed: int) -> None:
    """Print a table as CSV, a row as soon as it is known."""
    ratings = load(data)
    ratings = of_users(ratings, np.arange(min(users, ratings.n_users)))
    out = csv.writer(sys.stdout)
    out.writerow(
        ["sentence", "protocol", "adversary", "what", "number", "guess", "advantage", "told U", "verdict"]
    )
    with tempfile.TemporaryDirectory() as folder:
        made: dict[str, Transcript] = {}
        for claim in CLAIMS:
            if claim.victim not in made:
                path = Path(folder) / claim.victim
                record(make_victim(claim.victim, claim.options), ratings, path, rounds=ROUNDS, seed=seed)
                made[claim.victim] = open_transcript(path)
            out.writerow(_tested(claim, made[claim.victim], ratings, receivers, seed))
            sys.stdout.flush()
        told = list(_personal(ratings, made["dpmf-yang"], receivers, seed))
        row = ["004: personal parts stay local", "dpmf-yang", "one neighbour", "share of v_q"]
        out.writerow([*row, *_summed(np.array(told), np.zeros(len(told)), seed, "")])


def _receivers(transcript: Transcript, size: int, count: int, seed: int) -> Iterator[str]:
    """Names of adversaries: clients who receive something, as many together as are asked for."""
    assert transcript.deliveries is not None
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(np.unique(transcript.deliveries.receiver))
    for number in range(min(count, drawn.size // size)):
        members = np.sort(drawn[size * number : size * (number + 1)]).tolist()
        yield f"neighbour:{members[0]}" if size == 1 else f"neighbours:{','.join(map(str, members))}"


def _tested(claim: Claim, transcript: Transcript, ratings: Ratings, count: int, seed: int) -> list[str]:
    size = 1 if claim.adversary == "one neighbour" else 3
    found, told = [], []
    for adversary in _receivers(transcript, size, count, seed):
        rows = fl.audit_recording(transcript.path, adversary=adversary, attacks=[claim.attack])
        rows = rows[rows["metric"] == claim.metric]
        if len(rows) and np.isfinite(rows["value"].iloc[0]):
            found.append((rows["value"].iloc[0], rows["baseline"].iloc[0]))
        told.append(_told_u(transcript, transcript.view(adversary), ratings))
    what = f"{claim.attack}: {claim.metric}"
    row = [claim.sentence, claim.victim, claim.adversary, what]
    if not found:
        return [*row, "", "", "", "", "nothing was answered"]
    value, guess = np.array(found).T
    ceiling = (
        f"{np.nanmean(told):.3f}" if claim.metric == "rating_accuracy" and np.isfinite(told).any() else ""
    )
    return [*row, *_summed(value, guess, seed, ceiling)]


def _summed(value: np.ndarray, guess: np.ndarray, seed: int, ceiling: str) -> list[str]:
    rng = np.random.default_rng(seed)
    away = value - guess
    means = away[rng.integers(0, away.size, (DRAWS, away.size))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    verdict = "does not hold" if low > 0 else "nothing shown against it"
    text = f"{away.mean():.3f} [{low:.3f}, {high:.3f}] of {away.size}"
    return [f"{value.mean():.3f}", f"{guess.mean():.3f}", text, ceiling, verdict]


def _told_u(transcript: Transcript, view: View, ratings: Ratings) -> float:
    """Share of the first round right, by the factor that each sender had before it and the receiver's V."""
    manifest, links, first = view.manifest, view.links, ROUNDS[0]
    assert links is not None
    senders = np.setdiff1d(links.sender[np.isin(links.receiver, view.members)], view.members)
    factors = read_factors(factors_path(transcript.path))
    number, sender, index, row = (
        np.concatenate([np.asarray(part) for part in column])
        for column in (
            transcript.messages.round,
            transcript.messages.sender,
            transcript.messages.index,
            transcript.messages.gradient,
        )
    )
    here = (number == first) & np.isin(sender, senders)
    sender, index, row = sender[here], index[here], row[here]
    u = factors.of(sender, np.full(sender.size, first))
    v = view.broadcasts[first].factors[view.broadcasts[first].positions(np.zeros_like(index), index)]
    slope = np.sum((row - manifest.upload.regularization * v) * u, axis=1) / np.sum(u**2, axis=1)
    score = np.sum(u * v, axis=1)
    if manifest.rule.link == "sigmoid":
        g = expit(score)
        value = g - slope / (g * (1 - g))
    else:
        value = score - slope
    mapped = (manifest.rule.model_extra or {}).get("rating_map")
    if mapped is not None:
        value = in_stars(value, ratings.levels, mapped)
    levels = np.array(ratings.levels)
    named = levels[np.abs(value[:, None] - levels).argmin(axis=1)]
    return float(np.mean(named == np.asarray(ratings.matrix()[sender, index]).ravel()))


def _personal(ratings: Ratings, transcript: Transcript, count: int, seed: int) -> Iterator[float]:
    """Share of the personal parts of a receiver's neighbours that the rows it got add up to."""
    victim = make_victim("dpmf-yang", YANG)
    run = start(victim, ratings, (), seed)
    for number in ROUNDS:
        run = run.trained(number)
    held = run.state.items.personal
    user, item = np.divmod(held.keys, ratings.n_items)
    for adversary in _receivers(transcript, 1, count, seed):
        copies = transcript.view(adversary).copies
        assert copies is not None
        added = np.zeros((ratings.n_users, ratings.n_items, victim.factors))
        np.add.at(added, (copies.sender, copies.index), -victim.learning_rate * copies.gradient)
        here = np.isin(user, copies.sender)
        left = held.values[here] - added[user[here], item[here]]
        yield float(1 - np.sum(left**2) / np.sum(held.values[here] ** 2))


def parts(data: str, seed: int) -> None:
    """Print, as CSV, how far the personal parts are from what the rows add up to."""
    ratings = load(data)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(PARTS)
    for law in ("zero", "private"):
        victim = DPMFYang(personal_start=law)
        run = start(victim, ratings, (), seed)
        shape = (2, ratings.n_users, ratings.n_items, victim.factors)
        total, late = np.zeros(shape, np.float64), np.zeros(shape, np.float64)
        for number in range(max(SUMMED)):
            for rows in victim.uploads(run.state, ratings, np.arange(ratings.n_users)):
                which = np.where(rows.kind == ITEM, 0, 1)
                total[which, rows.sender, rows.index] += rows.gradient
                if number:
                    late[which, rows.sender, rows.index] += rows.gradient
            run = run.trained(number)
            if number + 1 in SUMMED:
                for first, summed in ((0, total), (1, late))[: number + 1]:
                    cells = [
                        f"{_error(-victim.learning_rate * summed[part], table.personal, ratings.n_items):.1e}"
                        for part, table in enumerate((run.state.items, run.state.implicit))
                    ]
                    out.writerow([law, first, number, *cells])
                    sys.stdout.flush()


def _error(summed: np.ndarray, personal: Copies, n_items: int) -> float:
    """Relative distance over the pairs that somebody sent rows about."""
    user, item = np.nonzero(np.abs(summed).sum(axis=2))
    if not user.size:
        return float("nan")
    true = at(personal, key_of(user, item, n_items))
    return float(np.linalg.norm(summed[user, item] - true) / np.linalg.norm(true))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    for name, default in (("users", 200), ("receivers", 10), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--parts", action="store_true", help="the table of personal parts alone")
    asked = parser.parse_args()
    if asked.parts:
        parts(asked.data, asked.seed)
    else:
        main(asked.data, asked.users, asked.receivers, asked.seed)
