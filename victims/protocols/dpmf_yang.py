"""DPMF: explicit and implicit feedback factored together by users who send gradients to those they trust.

X. Yang, Y. Luo, S. Fu, M. Xu, Y. Chen, "DPMF: Decentralized Probabilistic Matrix Factorization for
Privacy-Preserving Recommendation", Appl. Sci. 2022, 12(21), 11118, doi:10.3390/app122111118. Its algorithms
and figures are images, so that every line is our reading of the text. Hu & Fang 2023 compares with another
method of this name: ``dpmf-hua``.

==================  =============================================================================
U, Q                a user's own factor and offsets of its rated items; U^ = U + mean Q
V = v_p + v_q       item rating factors: the copy of a public vector, and a personal part
Z = z_p + z_q       item selecting factors, likewise
theta, lambda, W    ``learning_rate``, ``implicit_weight``, ``negative_weight``
lambda_U, V, Z, Q   ``lambda_users``, ``lambda_items``, ``lambda_implicit``, ``lambda_offsets``
alpha, d, K         ``positive_share``, ``degree``, ``factors``
==================  =============================================================================

A share alpha of the pairs are positives and lose their rating; as many unrated items of a user are its
negatives. In every round a user passes over its samples (``cofactor_round``) and sends (j, dL/dv_p) and (k,
dL/dz_p), of positives and of negatives, to d users whom it trusts, who step with E = 1/d of it. There is no
server and no helper; who trusts whom is public, and a receiver knows the sender.

Not given, and an option or our choice: theta, lambda_U to lambda_Q, the start, whether negatives and
receivers are drawn anew in each round, who receives from a user who trusts fewer than d, how ratings are
scaled, and whether regularization counts with every sample, as (15) to (18) are written, or once, as in (14).

A receiver knows d, theta and the shared start. As dL/dv_q = dL/dv_p, a personal part that starts at zero is
minus theta times the sum of the rows that its user sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from victims.common.validation import above, at_least, between, one_of, require_fields
from victims.data.ratings import Ratings
from victims.protocols.base import Attacker, Edges, Sample
from victims.protocols.cofactor_draws import Samples, observed, trusted, with_negatives
from victims.protocols.cofactor_round import Rules, State
from victims.protocols.cofactor_users import (
    FIELD_RULES,
    AmongTrusted,
    OwnTables,
    Start,
    manifest_of,
    start_state,
)
from victims.protocols.switches import check_peer_switches
from victims.transcript.manifest import Manifest


@dataclass(frozen=True)
class DPMFYang(AmongTrusted):
    """Hyper-parameters; lambda, W, alpha, d and K are those of section 4.3, the rest is not given.

    Attributes
    ----------
    update, weighting : str
        "sgd" and "observed-only", the only ones of this protocol.
    factors, degree : int
        K and d, >= 1.
    learning_rate : float
        theta, > 0.
    implicit_weight, negative_weight : float
        lambda >= 0; W in 0..1.
    lambda_users, lambda_items, lambda_implicit, lambda_offsets : float
        >= 0.
    regularize : "sample" or "round"
        Whether U and Q are regularized with every sample, or once a pass.
    order, shuffle : str
        As with a server, of samples; by default these go one by one, and in a new order each round, the
        explicit ones first.
    positive_share : float
        alpha, in 0..1.
    negatives, receivers : "fixed" or "rounds"
        Drawn once, or anew in each round.
    fallback : "nobody", "random" or "similarity"
        Who receives from a user who trusts fewer than d; see ``cofactor_draws``.
    rating_map : "max" or "min-max"
        How ratings are scaled to 0..1.
    start : "positive" or "normal"
        See ``cofactor_users``.
    init_scale, implicit_scale : float
        > 0; of U and V, and of Z and Q.
    init_spread : float
        Of U and V where they start positive, in 0..1.
    personal_start : "zero" or "private"
        Of v_q and z_q.
    predict_with : "offsets" or "users"
        Ratings with U^, as in training, or with U, as (19) is printed.

    References
    ----------
    Yang et al. 2022, doi:10.3390/app122111118, sections 3 and 4.
    """

    name: ClassVar[str] = "dpmf-yang"
    rows_about_implicit: ClassVar[bool] = True
    read_by: ClassVar[tuple[Attacker, ...]] = (
        Attacker("cofactors", 2),
        Attacker("cofactors-lists", 2),
        Attacker("rated-set", 2),
    )

    update: Literal["sgd"] = "sgd"
    weighting: Literal["observed-only"] = "observed-only"
    factors: int = 3
    degree: int = 3
    learning_rate: float = 0.1
    implicit_weight: float = 0.02
    negative_weight: float = 0.5
    lambda_users: float = 0.001
    lambda_items: float = 0.001
    lambda_implicit: float = 0.001
    lambda_offsets: float = 0.001
    regularize: Literal["sample", "round"] = "sample"
    order: Literal["batch", "per-rating"] = field(default="per-rating", kw_only=True)
    shuffle: Literal["never", "once", "rounds"] = field(default="rounds", kw_only=True)
    positive_share: float = 0.5
    negatives: Literal["fixed", "rounds"] = "fixed"
    receivers: Literal["fixed", "rounds"] = "fixed"
    fallback: Literal["nobody", "random", "similarity"] = "random"
    rating_map: Literal["max", "min-max"] = "max"
    start: Literal["positive", "normal"] = "positive"
    init_scale: float = 1.0
    init_spread: float = 0.1
    implicit_scale: float = 0.01
    personal_start: Literal["zero", "private"] = "zero"
    predict_with: Literal["offsets", "users"] = "offsets"

    def __post_init__(self) -> None:
        require_fields(
            self,
            self.name,
            **FIELD_RULES,
            implicit_weight=at_least(0),
            negative_weight=between(0, 1),
            lambda_implicit=at_least(0),
            lambda_offsets=at_least(0),
            negatives=one_of("fixed", "rounds"),
            receivers=one_of("fixed", "rounds"),
            implicit_scale=above(0),
            predict_with=one_of("offsets", "users"),
        )
        check_peer_switches(self, self.name)

    @property
    def rules(self) -> Rules:  # type: ignore[override]
        """Constants of the users' steps."""
        return Rules(
            self.learning_rate,
            self.implicit_weight,
            self.negative_weight,
            self.lambda_users,
            self.lambda_items,
            self.lambda_implicit,
            self.lambda_offsets,
            self.regularize == "sample",
            "logistic",
            self,
        )

    def init(self, ratings: Ratings, seed: int) -> State:
        """Start factors, the samples, and the graph where it does not change."""
        samples = observed(ratings, self.positive_share, self.rating_map, seed)
        if self.negatives == "fixed":
            samples = with_negatives(samples, ratings, seed, 0)
        edges = None if self.receivers == "rounds" else self.drawn(ratings, seed, 0)
        scales = self.init_scale, self.init_spread, self.implicit_scale
        start = Start(self.factors, self.start, *scales, self.personal_start, self.implicit_scale)
        return start_state(start, ratings, samples, edges, seed)

    def samples_of(self, state: State, ratings: Ratings) -> Samples:
        """Explicit samples, positives, and negatives of this round."""
        if self.negatives == "fixed":
            return state.samples
        return with_negatives(state.samples, ratings, state.seed, state.round)

    def predictor(self, state: State, ratings: Ratings, sample: Sample | None = None) -> OwnTables:
        """Ratings by U^ and V, or U and V; recommendation by U and Z."""
        with_offsets = self.predict_with == "offsets"
        return OwnTables(state, ratings.levels, self.rating_map, "logistic", with_offsets, True)

    def manifest(self, ratings: Ratings, rounds: list[int]) -> Manifest:
        """Everything that users know of each other's rule."""
        ridges = "lambda_users", "lambda_items", "lambda_implicit", "lambda_offsets"
        constants = "learning_rate", "implicit_weight", "negative_weight", *ridges
        said = "rating_map", "regularize", "positive_share", "negatives", "receivers", "degree"
        return manifest_of(self, ratings, rounds, "sigmoid", constants, said)

    def drawn(self, ratings: Ratings, seed: int, draw: int) -> Edges:
        """At most ``degree`` users who are trusted."""
        return trusted(ratings, self.degree, self.fallback, seed, draw)
