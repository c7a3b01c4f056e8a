"""DMF: ratings factored by users who send the gradient of a public part to users on random walks.

C. Chen, Z. Liu, P. Zhao, J. Zhou, X. Li, "Privacy Preserving Point-of-interest Recommendation Using
Decentralized Matrix Factorization", AAAI 2018, arXiv:2003.05610, as simplified by Yang et al. 2022, section
4.1.5 (doi:10.3390/app122111118), which compares ``dpmf-yang`` with it: the same trust graph, the same d.

==================  =============================================================================
U_i . (p_j + q_j)   prediction, without a link; p is the user's copy of a public part, q personal
theta               ``learning_rate``
D                   ``walk_length``: d walks of so many steps from every user; who is met receives
==================  =============================================================================

Squared loss and ridge: dL/dp = dL/dq = (U . (p + q) - R) U + lambda_V (p + q). Yang et al. 2022 does not say
what its DMF does with the pairs that ``dpmf-yang`` takes for implicit feedback; its Table 3 has |R| K d for
the communication, so that they are left out there: ``positive_share=0.5``. How far and how often walks go is
our reading, for the original weighs receivers by distances of places. With ``walk_length=1`` walks are drawn
with repetition among the d receivers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from victims.common.validation import above, between, one_of, require_fields
from victims.data.ratings import Ratings
from victims.protocols.base import Attacker, Edges, Sample
from victims.protocols.cofactor_draws import Samples, explicit_only, trusted, walked
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
class DMF(AmongTrusted):
    """Hyper-parameters; Yang et al. 2022 gives d and K alone.

    Attributes
    ----------
    update, weighting : str
        "sgd" and "observed-only", the only ones of this protocol.
    factors, degree, walk_length : int
        K, d and D, >= 1.
    learning_rate : float
        theta, > 0.
    lambda_users, lambda_items : float
        >= 0.
    regularize : "sample" or "round"
        Whether U is regularized with every rating, or once a pass.
    order, shuffle : str
        As with a server; by default ratings go one by one, and in a new order each round.
    positive_share : float
        Share of the pairs that are left out, in 0..1, exclusive of 1.
    walks : "fixed" or "rounds"
        Drawn once, or anew in each round.
    fallback : "nobody", "random" or "similarity"
        Who receives from a user who trusts fewer than d; see ``cofactor_draws``.
    rating_map : "max" or "min-max"
        How ratings are scaled to 0..1.
    start : "positive" or "normal"
        See ``cofactor_users``.
    init_scale : float
        > 0.
    init_spread : float
        Of the start where it is positive, in 0..1.
    personal_start : "zero" or "private"
        Of q.
    personal_scale : float
        > 0; standard deviation of a private start.

    References
    ----------
    C. Chen et al., AAAI 2018, arXiv:2003.05610; Yang et al. 2022, section 4.1.5.
    """

    name: ClassVar[str] = "dmf"
    rows_about_implicit: ClassVar[bool] = False
    read_by: ClassVar[tuple[Attacker, ...]] = (
        Attacker("undeclared", 1),
        Attacker("peers", 1),
        Attacker("rated-set", 2),
    )

    update: Literal["sgd"] = "sgd"
    weighting: Literal["observed-only"] = "observed-only"
    factors: int = 3
    degree: int = 3
    walk_length: int = 2
    learning_rate: float = 0.05
    lambda_users: float = 0.01
    lambda_items: float = 0.01
    regularize: Literal["sample", "round"] = "sample"
    order: Literal["batch", "per-rating"] = field(default="per-rating", kw_only=True)
    shuffle: Literal["never", "once", "rounds"] = field(default="rounds", kw_only=True)
    positive_share: float = 0.0
    walks: Literal["fixed", "rounds"] = "rounds"
    fallback: Literal["nobody", "random", "similarity"] = "random"
    rating_map: Literal["max", "min-max"] = "max"
    start: Literal["positive", "normal"] = "positive"
    init_scale: float = 0.8
    init_spread: float = 0.1
    personal_start: Literal["zero", "private"] = "zero"
    personal_scale: float = 0.01

    def __post_init__(self) -> None:
        require_fields(
            self,
            self.name,
            **FIELD_RULES,
            walk_length=between(1, 100),
            walks=one_of("fixed", "rounds"),
            personal_scale=above(0),
        )
        check_peer_switches(self, self.name)

    @property
    def rules(self) -> Rules:  # type: ignore[override]
        """Constants of the users' steps; there is no implicit feedback, and there are no offsets."""
        ridges = self.lambda_users, self.lambda_items, 0.0, 0.0
        return Rules(
            self.learning_rate, 0.0, 0.0, *ridges, self.regularize == "sample", "identity", self, False
        )

    def init(self, ratings: Ratings, seed: int) -> State:
        """Start factors, the ratings, and the walks where they do not change."""
        samples = explicit_only(ratings, self.positive_share, self.rating_map, seed)
        edges = None if self.walks == "rounds" else self.drawn(ratings, seed, 0)
        scales = self.init_scale, self.init_spread, 0.0
        start = Start(self.factors, self.start, *scales, self.personal_start, self.personal_scale)
        return start_state(start, ratings, samples, edges, seed)

    def samples_of(self, state: State, ratings: Ratings) -> Samples:
        """Ratings alone."""
        return state.samples

    def predictor(self, state: State, ratings: Ratings, sample: Sample | None = None) -> OwnTables:
        """U . (p + q)."""
        return OwnTables(state, ratings.levels, self.rating_map, "identity", False, False)

    def manifest(self, ratings: Ratings, rounds: list[int]) -> Manifest:
        """Everything that users know of each other's rule."""
        constants = "learning_rate", "lambda_users", "lambda_items"
        said = "rating_map", "regularize", "positive_share", "walks", "walk_length", "degree"
        return manifest_of(self, ratings, rounds, "identity", constants, said)

    def drawn(self, ratings: Ratings, seed: int, draw: int) -> Edges:
        """Who is met on walks."""
        graph = trusted(ratings, self.degree, self.fallback, seed, 0)
        return walked(graph, self.degree, self.walk_length, seed, draw)
