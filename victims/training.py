"""A victim in training under its defenses: the state of the moment, and what its clients send in a round.

Nothing here writes: every function is one of the run and of its seed, so that a recording, an evaluation
and a cost measurement see the same uploads.

``obstacle`` says why a victim cannot have its defenses, before any ratings are loaded, by a look at a few
synthetic ones. A defense that cannot be asked without its own ratings (its file names other clients, say) is
taken to apply; it is refused when it is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Int

from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.data.synthetic import Synthetic, generate
from victims.protocols.base import (
    Capabilities,
    Cipher,
    Defense,
    Holding,
    Network,
    Predictor,
    Products,
    Received,
    Rows,
    Sample,
    SetUp,
    Shape,
    Star,
    Victim,
    changes,
)
from victims.protocols.network import Protect, Sums
from victims.transcript.kinds import ITEM

T = TypeVar("T")


class Run(NamedTuple):
    """A training in progress."""

    victim: Victim
    ratings: Ratings  # those that clients train on, on their devices
    defenses: tuple[Defense, ...]
    seed: int
    cipher: Cipher | None  # none where uploads stay in the clear
    state: Any  # of the victim, before the next round

    def trained(self, round_: int, sums: Sequence[Sums] = (), on_received: bool = True) -> Run:
        """The run after a round."""
        sample = self.sample(round_)
        arrived = received(self, round_, sums, sample) if on_received else None
        return self._replace(state=self.victim.round(self.state, self.ratings, arrived, sample))

    @property
    def can(self) -> Capabilities:
        """What the victim can do."""
        return self.victim.capabilities

    @property
    def blind(self) -> bool:
        """Whether the server adds up what it cannot open: clients hold the key, where masks would cancel."""
        return self.can.blind_server and self.cipher is not None and self.cipher.rules.decrypters.size > 0

    @property
    def stopped(self) -> bool:
        """Whether the training is over, by the victim's own criterion."""
        return self.can.stopped is not None and self.can.stopped(self.state)

    def sample(self, round_: int) -> Sample | None:
        """Unrated items that take part in a round, by the one defense that chooses them."""
        sample = only_one([d.sampled(self.ratings, round_, self.seed) for d in self.defenses])
        if sample is not None and self.can.sampling_obstacle:
            raise InputError(self.can.sampling_obstacle)
        return sample

    def user_factors(self, round_: int) -> Float[np.ndarray, "users factors"]:
        """The clients' factors in a round."""
        return self.victim.user_factors(self.state, self.ratings, self.sample(round_))

    def predictor(self, round_: int) -> Predictor:
        """What the clients predict in a round."""
        sample = self.sample(round_)
        if self.can.predictor is not None:
            return self.can.predictor(self.state, self.ratings, sample)
        clients = self.victim.user_factors(self.state, self.ratings, sample)
        items = self.victim.broadcast(self.state)[0]
        if not self.can.has_biases:
            return Products(clients, items)
        of_clients, of_items = np.ones((len(clients), 2)), np.ones((len(items), 2))
        of_clients[:, 0], of_items[:, 1] = self.state.biases.clients, self.state.biases.items
        tables = (clients, of_clients), (items, of_items)
        return Products(*(np.concatenate(table, axis=1) for table in tables))

    @property
    def network(self) -> Network:
        """Whom the rows of the next round go to."""
        if self.can.network is not None:
            return self.can.network(self.state, self.ratings)
        items, attributes = self.victim.broadcast(self.state)
        return Star(Shape(items.shape[0], attributes.shape[0], items.shape[1]))

    def holdings(self, watched: Int[np.ndarray, " clients"]) -> Iterator[Holding]:
        """Item factors that each of some clients (ascending) alone knows before the next round."""
        if self.can.holdings is not None:
            yield from self.can.holdings(self.state, self.ratings, watched)

    def set_up(self) -> Iterator[SetUp]:
        """What is sent once, before the first round, as it leaves the clients."""
        for formed in self.can.set_up(self.state, self.ratings) if self.can.set_up is not None else ():
            sent = formed
            for defense in self.defenses:
                sent = defense.set_up(sent, self.ratings, self.seed)
            yield sent


def as_read(victim: Victim, ratings: Ratings) -> Ratings:
    """What a victim learns from, where all its clients take part in full."""
    return ratings.interactions() if victim.capabilities.implicit else ratings


def start(victim: Victim, ratings: Ratings, defenses: Sequence[Defense], seed: int) -> Run:
    """A training before round 0."""
    check_together(victim, defenses)
    ratings = as_read(victim, ratings)
    for defense in defenses:
        victim, ratings = defense.agreed(victim), defense.on_device(ratings, seed)
    run = Run(victim, ratings, tuple(defenses), seed, None, victim.init(ratings, seed))
    if not defenses:
        return run
    factors = victim.broadcast(run.state)[0].shape[1]
    cipher = check_on_the_way(victim, defenses, run.network, ratings, factors, seed)
    run = run._replace(cipher=cipher)
    if cipher is not None and run.blind:  # it starts from encrypted, so from rounded, factors
        rounded = cipher.rules.rounded(np.asarray(run.state.item_factors))
        run = run._replace(state=run.state._replace(item_factors=rounded))
    return run


def check_together(victim: Victim, defenses: Sequence[Defense]) -> None:
    """Refuse the same noise twice, and what a server rules out that steps at every upload."""
    names = [defense.name for defense in defenses if changes(defense, "uploaded")]
    for name in names:
        if names.count(name) > 1:  # it is drawn by its name
            raise InputError(
                f"{name} must be named once, for its second noise would be the first again; got it "
                f"{names.count(name)} times; use one with a larger scale"
            )
    sums = [defense.name for defense in defenses if changes(defense, "summed")]
    if len(sums) > 1:  # both would draw the noise of the sums
        raise InputError(f"defenses that add noise to sums must be one, got {', '.join(sums)}; leave one out")
    in_turn = victim.capabilities.uploads_in_turn is not None
    for defense in defenses:
        if in_turn and changes(defense, "uploaded") and not defense.additive:
            raise InputError(
                f"{defense.name} cannot be applied where the server steps at every upload: what is done to "
                "a row must not depend on the row; use order=batch"
            )


def _answer(question: Callable[[], T]) -> T | None:
    return question()


def check_on_the_way(
    victim: Victim,
    defenses: Sequence[Defense],
    network: Network,
    ratings: Ratings,
    factors: int,
    seed: int,
    asked: Callable[[Callable[[], Any]], Any] = _answer,
) -> Cipher | None:
    """Refuse defenses that make no sense with biases, with others, or on the way that rows take.

    The cipher of the last one is what uploads are encrypted with.
    """
    cipher: Cipher | None = None
    for position, defense in enumerate(defenses):
        cipher = asked(partial(defense.cipher, ratings.n_users, factors, seed))
        if victim.capabilities.has_biases and (cipher is not None or changes(defense, "uploaded")):
            biases = getattr(victim, "biases", "")
            raise InputError(
                f"{defense.name} must have no biases beside the rows that it protects, for clients send "
                f"their errors for them in the clear; got biases={biases}; use biases=none"
            )
        network.check(defense.name, cipher)
        scale = partial(defense.noise_scale, ratings, factors, 0, seed)
        if network.edges is not None and asked(scale) is not None:
            raise InputError(
                f"{defense.name} is noise whose scale a server draws and hands out, and these clients have "
                "none; use laplace or gaussian"
            )
        decrypted = cipher is not None and not victim.capabilities.blind_server
        for central in defenses if network.edges is not None or decrypted else ():
            if changes(central, "summed"):
                raise InputError(
                    f"{central.name} needs an aggregator who adds noise to the sum over all clients before "
                    "anybody sees it, and here neighbours or a server see sums without; use fedmf, or leave "
                    "the encryption out"
                )
        if cipher is not None and position < len(defenses) - 1:
            raise InputError(
                f"{defense.name} must be the last defense, for nothing can be done to encrypted rows; "
                f"got {defenses[position + 1].name} after it"
            )
    return cipher


def only_one(samples: Sequence[Sample | None]) -> Sample | None:
    """Choose the sample of the one defense that has one."""
    chosen = [sample for sample in samples if sample is not None]
    if len(chosen) > 1:
        raise InputError("at most one defense may sample unrated items; leave the others out")
    return chosen[0] if chosen else None


def formed_rows(
    run: Run, users: np.ndarray, round_: int, sample: Sample | None = None, on_received: bool = True
) -> Iterator[Rows]:
    """Rows of clients after what defenses do once for all who receive them."""
    sample = sample or run.sample(round_)
    if run.can.uploads_in_turn is not None:
        arrived = received(run, round_) if on_received else None
        uploads = run.can.uploads_in_turn(run.state, run.ratings, users, arrived)
    else:
        uploads = run.victim.uploads(run.state, run.ratings, users, sample)
    for rows in uploads:
        yield _through(_once_and_each(run.defenses)[0], rows, run.ratings, round_, run.seed)


def each_message(run: Run, round_: int) -> Protect | None:
    """What defenses do to every message anew, from the first that does on; None where none does."""
    each = _once_and_each(run.defenses)[1]
    if not each:
        return None
    return lambda rows, seed: _through(each, rows, run.ratings, round_, seed)


def sent_rows(
    run: Run, users: np.ndarray, round_: int, sample: Sample | None = None, on_received: bool = True
) -> Iterator[Rows]:
    """Rows as they leave the clients, before they are encrypted, for one who receives those of all."""
    each = each_message(run, round_)
    for rows in formed_rows(run, users, round_, sample, on_received):
        yield rows if each is None else each(rows, run.seed)


def received(
    run: Run, round_: int, sums: Sequence[Sums] = (), sample: Sample | None = None
) -> Received | None:
    """What arrives in a round, as those who receive it step with it; None where no defense changes it."""
    if run.cipher is None and not any(changes(defense, "uploaded") for defense in run.defenses):
        return None
    if run.can.uploads_in_turn is not None:
        return _added(run, round_)
    rows = _rows_of_all(run, round_, sample)
    arrived = run.network.arrived(rows, each_message(run, round_), run.cipher, sums, run.seed)
    for defense in run.defenses:
        arrived = defense.summed(arrived, round_, run.seed)
    return arrived


def sums_of(run: Run, round_: int, watched: np.ndarray) -> list[Sums]:
    """The sums that are seen of encrypted rows."""
    assert run.cipher is not None
    rows, each = _rows_of_all(run, round_), each_message(run, round_)
    return run.network.sums(rows, each, run.cipher, watched, run.seed)


def _rows_of_all(run: Run, round_: int, sample: Sample | None = None) -> Callable[[], Iterator[Rows]]:
    return partial(formed_rows, run, np.arange(run.ratings.n_users), round_, sample)


def _once_and_each(defenses: Sequence[Defense]) -> tuple[Sequence[Defense], Sequence[Defense]]:
    """Those that treat a row once, and those from the first on that treats every message anew."""
    first = next((at for at, defense in enumerate(defenses) if defense.per_message), len(defenses))
    return defenses[:first], defenses[first:]


def _through(defenses: Sequence[Defense], rows: Rows, ratings: Ratings, round_: int, seed: int) -> Rows:
    for defense in defenses:
        rows = defense.uploaded(rows, ratings, round_, seed)
    return rows


def _added(run: Run, round_: int) -> Received:
    """What additive defenses add to the upload of every rating."""
    ratings, factors = run.ratings, run.victim.broadcast(run.state)[0].shape[1]
    kind = np.full(ratings.n_ratings, ITEM, np.int8)
    rows = Rows(ratings.users, kind, ratings.items, np.zeros((ratings.n_ratings, factors)))
    rows = _through(run.defenses, rows, ratings, round_, run.seed)
    nothing = np.zeros((0, factors))
    return Received(nothing, nothing, rows.gradient)


def obstacle(victim: Victim, defenses: Sequence[Defense]) -> str:
    """Say why a victim cannot have defenses."""
    try:
        check_together(victim, defenses)
        network = network_of(victim) if defenses else None
        if network is not None:
            check_on_the_way(victim, defenses, network, _few(), 2, 0, _asked)
        sample = only_one([_asked(partial(defense.sampled, _few(), 0, 0)) for defense in defenses])
    except InputError as error:
        return str(error)
    return "" if sample is None else victim.capabilities.sampling_obstacle


def network_of(victim: Victim) -> Network | None:
    """Form the network of a victim among a few clients."""
    network = victim.capabilities.network
    if network is None:
        return Star(Shape(0, 0, 0))
    return _asked(lambda: network(victim.init(_few(), 0), _few()))


def _asked(question: Callable[[], T]) -> T | None:
    """The answer, None where these ratings allow none.

    Components of others may raise anything on so few clients. That must not end the command while its cells
    are listed: what cannot be told is tried, and fails as a row with its reason.
    """
    try:
        return question()
    except Exception:
        return None


@cache
def _few() -> Ratings:
    return generate(Synthetic(users=6, items=8, ratings_per_user=4.0))
