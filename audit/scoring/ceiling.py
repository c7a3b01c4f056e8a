"""The limit beside a score: a decoder that reads each answer with all other answers of the client in hand.

It knows the uploads, the law of the noise, every rating and attribute of the client but the one in question,
in sgd also the client's factor in the first round, and how ratings are distributed: a prior of the form that
``likelihood`` estimates (levels, activity, mean and dispersion of each client, popularity and mean of each
item), fitted to the true answers; an item's effects to those of the other clients. Given all that the
posterior is exact (``audit.scoring.all_but_one``), and each metric gets the answer to its own question. An
attack sees the uploads alone, so that on average over the noise it does not pass this decoder: each of its
answers is a function of what the decoder has. On few clients it may by chance.

Why not the decoder that is told p_i alone: in semi-als p_i is a function of the ratings, so that whoever is
told p_i to the last digit could search for the ratings that give it, and whoever reads row by row instead
knows less than an attack that uses (8), where a client has few ratings. The limit here has the same
knowledge of p_i and uses it; where a client has few ratings for the number of factors it is generous.

What it is no limit for: an attack that knows more of ratings than that prior, say from similar clients. In
sgd the truth has no factors: the likeliest one under the true answers stands for it, which favours them. Not
computed where constants of the clients' step are not public, for an attack may estimate them and read more. A
client of whose uploads the true answers and these factors leave more than noise (training that diverged, a
rule that is not the declared one) has the perfect score for a limit.
Where clients keep some of their ratings to themselves the limit is that of ``audit.scoring.never_sent``.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool

from attacks.base import Estimates
from attacks.client_rules.premises import unlike
from attacks.closed_form.uploads.repeated_noise import noise_repeats
from attacks.likelihood import oracle
from attacks.likelihood.oracle import Answers, BatchCache
from attacks.obstacles import alpha_unknown, unreadable
from audit.scoring.all_but_one import log_likelihoods
from audit.scoring.attribute_metrics import attribute_table
from audit.scoring.limits import Ceiling
from audit.scoring.metrics import lookup, score_users
from audit.scoring.never_sent import limits_of_sent, unlimited
from audit.scoring.truth import Truth
from victims.transcript.view import View

MODELLED = frozenset({"laplace"})


def obstacle(view: View) -> str:
    """Say why there is no limit for a view."""
    if view.manifest.withholds_ratings:
        return unlimited(view)
    other = [str(entry.get("name")) for entry in view.manifest.defenses if entry.get("name") not in MODELLED]
    if other:
        return f"the limit does not model {', '.join(other)}"
    reason = unreadable(view) or alpha_unknown(view) or oracle.unmodelled(view.manifest) or unlike(view)
    if reason or view.users.size == 0:
        return reason or "the view has no clients"
    if noise_repeats(view):
        return "the noise is the same in several rounds, and what two of them differ by is free of it"
    if not oracle.constants_are_public(view):
        return "constants of the clients' step are not public, and an attack may estimate them"
    return ""


def computable(view: View) -> bool:
    """Tell whether there are uploads to read, under a law that the decoder models."""
    return not obstacle(view)


def ceilings(view: View, truth: Truth) -> dict[str, Ceiling]:
    """The limit of every metric, for each client of a view."""
    truth.refuse_unless_about(view.manifest)
    if view.manifest.withholds_ratings:
        return limits_of_sent(view, truth)
    batches, flat = oracle.prepared(view)
    problem = batches.problem
    known = [true_answers(batches, batch, truth) for batch in range(problem.n_batches)]
    factors = [oracle.factors_of(batches, flat, batch, answers) for batch, answers in enumerate(known)]
    if not problem.known_noise:
        flat = oracle.with_fitted_noise(batches, flat, known, factors)
    informed = oracle.fit_prior(batches, flat, known)
    limited = [
        oracle.explained(batches, flat, batch, answers, p)
        for batch, (answers, p) in enumerate(zip(known, factors, strict=True))
    ]
    blocks: tuple[list[Estimates], list[Estimates]] = ([], [])
    for batch, (answers, p) in enumerate(zip(known, factors, strict=True)):
        told = problem.attribute_factors, batches.rows(batch), flat.constants, answers, p
        likely = log_likelihoods(problem.model, *told)
        priors = (
            (flat, oracle.flat_log_prior(batches, flat, batch)),
            (informed.parameters, oracle.log_prior_of_others(batches, informed, batch, answers)),
        )
        for out, (parameters, prior) in zip(blocks, priors, strict=True):
            found = oracle.posterior(batches, parameters, batch, prior, *likely)
            found = unlimited_where(~limited[batch], answers, found)
            out.append(oracle.estimates(batches, batch, found))
    users = np.unique(view.users)
    ml, by_prior = (score_users(tuple(part), view.manifest, truth, users).values for part in blocks)
    return {metric: Ceiling(users, ml[metric], by_prior[metric]) for metric in ml}


def unlimited_where(lost: Bool[np.ndarray, " users"], true: Answers, limit: Answers) -> Answers:
    """Put true answers where the decoder does not know the clients' factors."""
    items = np.where(lost[:, None], true.items, limit.items)
    return Answers(items, np.where(lost[:, None], true.attributes, limit.attributes))


def true_answers(batches: BatchCache, batch: int, truth: Truth) -> Answers:
    """Put what the truth says about every slot of a batch, and about the attributes, as answers."""
    problem, about = batches.problem, oracle.asked(batches, batch)
    row = truth.rows(about.users)
    ratings = lookup(truth, row, about.items, about.items.shape)
    attributes = attribute_table(truth, problem.view.manifest, row)
    return oracle.certain_answers(problem.model, about, ratings, attributes)
