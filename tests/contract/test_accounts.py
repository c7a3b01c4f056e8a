"""No victim, option and defense has a number that its proof does not cover, and no number is refuted.

The lists of ``defenses.accounts`` say which options a proof does not depend on. Here every option of
every victim gets another value: where an account then has a number, what is sent beside the rows must not
depend on any rating, given the rows that arrive.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

from audit.accounts import accounts_of
from audit.factories import make_defenses, make_victim
from audit.registry import BUILT_IN
from defenses.accounts import ONE_RATING, ROWS
from tests.contract.refuter import CASES, PAIRS, bound_of, printed
from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.data.synthetic import Synthetic, generate
from victims.protocols.base import Defense, Victim
from victims.protocols.fedmf import FedMF
from victims.recording import exchange_of, record
from victims.training import obstacle, received, start
from victims.transcript.reader import open_transcript

RATINGS = generate(Synthetic(users=6, items=8, ratings_per_user=3.0, seed=2))
PLANTED, ROUNDS = int(np.argmax(np.diff(RATINGS.indptr))), 3
TEXTS = ("laplace:scale=1,clip=1", "objective-noise:noise=once", "objective-noise:noise=fresh",
         "objective-noise:noise=composed")  # fmt: skip
MORE = {False: ("gaussian:scale=1,clip=1", "laplace:scale=1,clip=1,per_message=true",
                "laplace:scale=1,clip=1+gaussian:scale=1,clip=1"), True: ()}  # with all defaults  # fmt: skip
ALLOWING = ({}, {"order": "batch"}, {"order": "per-rating"}, {"update": "sgd"},
            {"update": "sgd", "order": "per-rating"}, {"order": "batch", "batch_size": "2"})  # fmt: skip
NAMES = [name for name in BUILT_IN["victims"] if name != "fedrec"]  # of whose network no proof speaks


def other_values(name: str) -> Iterator[dict[str, str]]:
    """Each option of a victim, with each other value that it takes."""
    victim = make_victim(name)
    hints = typing.get_type_hints(type(victim))
    for field in fields(victim):
        known = [value for value in typing.get_args(hints[field.name]) if isinstance(value, str)]
        if isinstance(field.default, bool):
            known = [not field.default]
        elif isinstance(field.default, int | float):
            known = [type(field.default)(field.default / 2) or type(field.default)(1)]
        elif field.name == "batch_size":
            known = [2]
        for value in known:
            if value != field.default:
                yield {field.name: str(value).lower() if isinstance(value, bool) else str(value)}


def made(name: str, option: dict[str, str]) -> Victim | None:
    """The victim, with what the option needs; None where it is refused."""
    for more in ALLOWING:
        try:
            return make_victim(name, {"factors": "2"} | more | option)
        except InputError:
            continue
    return None


def has_number(name: str, victim: Victim, text: str, n_rounds: int) -> bool:
    told = accounts_of(name, [victim], make_defenses(text), RATINGS, n_rounds=n_rounds, seed=0)
    lines = [line for one in told for account in one.accounts for line in account.lines]
    return any(np.isfinite(line.at_delta) for line in lines)


def other_world(ratings: Ratings) -> Ratings:
    """All ratings of one client turned upside down; which items it rated stays."""
    values = ratings.values.copy()
    mine = ratings.users == PLANTED
    values[mine] = ratings.levels[0] + ratings.levels[-1] - values[mine]
    return replace(ratings, values=values)


def assert_rows_are_all(victim: Victim, text: str, n_rounds: int) -> None:
    """Given the rows that arrive, nothing else that anybody sends depends on a client's ratings."""
    one, two = (start(victim, ratings, make_defenses(text), 0) for ratings in (RATINGS, other_world(RATINGS)))
    everybody = np.arange(RATINGS.n_users)
    for round_ in range(n_rounds):
        first, second = (exchange_of(run, everybody, round_) for run in (one, two))
        for name in ("items", "attributes", "bias", "noise_scale"):
            np.testing.assert_array_equal(getattr(first, name), getattr(second, name), err_msg=name)
        for ours, theirs in zip(first.batches, second.batches, strict=True):
            for name in ("sender", "kind", "index", "sequence", "reference", "bias"):
                np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)
            others = ours.sender != PLANTED
            np.testing.assert_array_equal(ours.gradient[others], theirs.gradient[others])
        told = (run.set_up() for run in (one, two))
        for ours, theirs in zip(*told, strict=True):
            np.testing.assert_array_equal(ours.index, theirs.index)
        edges = [run.network.edges for run in (one, two)]
        assert edges[0] is None or all(map(np.array_equal, *edges))
        arrived = received(one, round_)
        one, two = (
            run._replace(state=run.victim.round(run.state, run.ratings, arrived)) for run in (one, two)
        )
        assert one.stopped == two.stopped


@pytest.mark.parametrize(
    "name", [name if name == "pdmfrec" else pytest.param(name, marks=pytest.mark.thorough) for name in NAMES]
)
def test_what_has_a_number_sends_nothing_but_rows(name):
    checked = 0
    for option in ({}, *other_values(name)):
        victim = made(name, option)
        for text in (*TEXTS, *MORE[bool(option)]) if victim is not None else ():
            if obstacle(victim, make_defenses(text)):
                continue
            rounds = next((n for n in (ROUNDS, 1) if has_number(name, victim, text, n)), 0)
            if rounds:
                assert_rows_are_all(victim, text, rounds)
                checked += 1
    assert checked > 10


def test_the_check_finds_what_is_no_row():
    """Biases, whose sums are clean, and a training that stops by clean gradients."""
    biased = make_victim("fedmf", {"factors": "2", "biases": "items"})
    with pytest.raises(AssertionError, match="bias"):
        assert_rows_are_all(biased, "stretching", 1)
    victim = make_victim("fedmf", {"factors": "2", "stop_gradient": "1e-9", "init_scale": "2"})
    assert not has_number("fedmf", victim, TEXTS[0], 1)
    runs = [start(victim, ratings, [], 0).trained(0) for ratings in (RATINGS, other_world(RATINGS))]
    between = float(np.mean([run.state.gradient[0] for run in runs]))
    with pytest.raises(AssertionError):
        assert_rows_are_all(replace(victim, stop_gradient=between, stop_side="clients"), TEXTS[0], 1)


@dataclass(frozen=True)
class Newer(FedMF):
    """An option that no proof has seen."""

    gossip: bool = False


@dataclass(frozen=True)
class Foreign(Defense):
    name: str = "foreign"


def unproved(victim, defenses, name="fedmf", **setting):
    told = accounts_of(name, [victim], defenses, RATINGS, n_rounds=2, seed=0, **setting)
    return told[0].accounts[0].unproved


@pytest.mark.parametrize(
    ("why", "found"),
    [
        ("does not cover gossip=True of fedmf",
         lambda: unproved(Newer(gossip=True), make_defenses(TEXTS[0]))),
        ("knows nothing of what mine sends",
         lambda: unproved(FedMF(), make_defenses(TEXTS[0]), name="mine")),
        ("does not know what foreign does", lambda: unproved(FedMF(), [*make_defenses(TEXTS[0]), Foreign()])),
        ("receivers trained on the rows before the defenses",
         lambda: unproved(FedMF(), make_defenses(TEXTS[0]), on_received=False)),
        ("the proof is for 1 round from round 0 on, and 2 ran",
         lambda: unproved(make_victim("mf"), make_defenses(TEXTS[2]), name="mf")),
        ("does not cover participation=0.2 of mf",
         lambda: unproved(make_victim("mf", {"participation": "0.2"}), make_defenses(TEXTS[2]), name="mf")),
    ],
)  # fmt: skip
def test_what_no_proof_covers_has_a_reason(why, found, monkeypatch):
    monkeypatch.setattr("audit.accounts.recorded_name", lambda name: name)
    assert why in found()
    assert not unproved(Newer(), make_defenses(TEXTS[0]))


@pytest.mark.parametrize("option", ["local_steps=2", "batch_size=1", "row_factor=after", "dropout=0.5",
                                    "participation=0.2", "order=per-rating", "upload=delta"])  # fmt: skip
def test_shared_noise_is_proved_of_the_published_step_alone(option):
    name, _, value = option.partition("=")
    assert has_number("mf", make_victim("mf"), "objective-noise", 1)
    assert not has_number("mf", make_victim("mf", {name: value}), "objective-noise", 1)


def test_a_victim_that_forms_no_rows_is_not_covered():
    victim = make_victim("pdmfrec", {"receive": "arrival"})
    assert "does not cover receive=arrival" in unproved(victim, make_defenses(TEXTS[0]), name="pdmfrec")


def test_lists_name_options_that_exist():
    """A misspelt one would cover nothing, and an option of another victim could come to mean something."""
    for proof in (ROWS, ONE_RATING):
        for name, covered in proof.victims.items():
            assert covered <= {field.name for field in fields(make_victim(name))}


def test_rounds_that_were_not_recorded_count():
    """The broadcast of round 9 depends on the uploads of the nine before: record --rounds 9 runs ten."""
    victim, defenses = make_victim("fedmf"), make_defenses("laplace:scale=0.064,clip=0.008")
    ((_, (account,)),) = accounts_of("fedmf", [victim], defenses, RATINGS, n_rounds=10, seed=0)
    rows = np.diff(RATINGS.indptr)
    found = {line.what: line.epsilon for line in account.lines}
    assert found["one rating"] == pytest.approx(0.25 * (1 + 9 * rows.max()))
    assert found["one client, largest"] == pytest.approx(0.25 * 10 * rows.max())


@pytest.mark.thorough
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.text)
def test_no_printed_epsilon_is_refuted(case, pair):
    """At 1 - 1e-4 for each of the 22 bounds; delta = 1e-5 is far below what 300 runs can bound."""
    epsilon = printed(case, pair)
    bound = bound_of(case, pair, 300, 1 - 1e-4).epsilon
    assert np.isnan(epsilon) or bound <= epsilon + 0.01


def test_the_same_noise_twice_is_refused():
    """Before: the second was the first again, and the account counted both as if they were independent."""
    defenses = make_defenses("laplace:scale=1,clip=0.5+laplace:scale=0.01,clip=0.01")
    with pytest.raises(InputError, match="laplace must be named once"):
        start(FedMF(), RATINGS, defenses, 0)
    assert "named once" in obstacle(FedMF(), defenses)


@pytest.mark.parametrize(
    "text", ["laplace:scale=100,clip=0.1", "gaussian", "objective-noise", "paillier:ideal=true"]
)
@pytest.mark.parametrize("name", ["fedmf", "mf"])
def test_no_defense_of_rows_beside_biases(name, text):
    """Before: sums of clean errors were broadcast, beside an account of the noise on the rows."""
    victim = make_victim(name, {"biases": "items"})
    with pytest.raises(InputError, match="must have no biases beside the rows that it protects"):
        start(victim, RATINGS, make_defenses(text), 0)
    assert "biases=none" in obstacle(victim, make_defenses(text))


def test_errors_sent_for_biases_are_recorded_for_the_server(tmp_path):
    """The errors themselves: their sums are what moves the biases that are broadcast."""
    record(make_victim("fedmf", {"biases": "items"}), RATINGS, tmp_path / "t", rounds=[0, 1])
    view = open_transcript(tmp_path / "t").view("server")
    told = view.told["item-bias"]
    first = told.round == 0
    assert first.sum() == RATINGS.n_ratings
    moved = np.bincount(told.index[first], told.value[first], minlength=RATINGS.n_items)
    before, after = (view.broadcasts[round_].bias for round_ in (0, 1))
    np.testing.assert_allclose(before + moved, after, atol=1e-12)
