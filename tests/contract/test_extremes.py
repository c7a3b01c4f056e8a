"""Extreme numbers in recordings: opening refuses by rule, or every attack answers or abstains, finitely.

The suite runs a sample that does not change.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attacks.base import Reconstruction
from audit.experiments.answers import answered
from audit.registry import entries
from tests.contract.extremes import SCENARIOS, Extreme, Outcome, draft, extremes, outcome, truth_of, views_of
from victims.common.errors import InputError
from victims.common.limits import LARGEST, SMALLEST
from victims.transcript.reader import open_transcript

ATTACKS = list(entries("attacks"))
COMPILED = [name for name in ATTACKS if name.startswith(("likelihood", "trajectory", "root", "inversion"))]
QUICK = [name for name in ATTACKS if name not in COMPILED]
SAMPLES = [(scenario, QUICK, 2) for scenario in SCENARIOS]  # cases of each that are not refused
SAMPLES.append((SCENARIOS[0], COMPILED, 1))


def shuffled(scenario: tuple[str, str]) -> list[Extreme]:
    """All extremes in an order that depends on the scenario alone."""
    every = extremes()
    order = np.random.default_rng(SCENARIOS.index(scenario)).permutation(len(every))
    return [every[place] for place in order]


@pytest.mark.thorough
@pytest.mark.parametrize(("scenario", "attacks", "most"), SAMPLES)
def test_refused_or_answered_or_abstained(tmp_path, scenario, attacks, most):
    truth, opened = truth_of(scenario, tmp_path), 0
    for extreme in shuffled(scenario):
        seen = views_of(extreme, scenario, tmp_path)
        if isinstance(seen, Outcome):
            assert seen.what == "refused", (extreme.name, seen.words)
            continue
        for name in attacks:
            result = outcome(name, seen["server"], truth, tmp_path)
            assert result.what in ("answered", "abstained"), (extreme.name, name, result.words)
        opened += 1
        if opened == most:
            break
    assert opened == most


def of_peers(name: str) -> bool:
    """Whether an attack reads what clients send each other, a helper or nobody, and no server's uploads."""
    return name.startswith(("peers", "cofactors")) or name in ("helper-lists", "traffic")


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("case", ["sealed state True uploads False sums False", "only attributes of zeros"])
def test_nothing_to_read(tmp_path, name, case):
    """Factors that the adversary cannot open, and clients who sent attributes alone, all zeros."""
    (extreme,) = (one for one in extremes() if one.name == case)
    seen = views_of(extreme, ("sgd", "observed-only"), tmp_path)
    assert isinstance(seen, dict)
    result = outcome(name, seen["server"], None, tmp_path)
    assert result.what in ("answered", "abstained"), result.words
    unasked = name in ("rated-set", "aggregate", "isolated") or of_peers(name)  # whose rows it is comes first
    if case.startswith("sealed") and not unasked:
        found = answered(name, None, seen["server"], 0)
        assert set(found.abstained.values()) == {
            "the broadcast factors are encrypted and the adversary holds no key"
        }


@pytest.mark.parametrize("table", ["state", "messages"])
@pytest.mark.parametrize(
    ("value", "rule"),
    [(LARGEST * 1.01, "must be at most 1e\\+30 in size, got 1.01e\\+30"), (LARGEST, ""), (SMALLEST, "")],
)
def test_magnitudes(tmp_path, table, value, rule):
    drafted = draft(SCENARIOS[0])
    column = "factor" if table == "state" else "gradient"
    getattr(drafted, table)[column][7, 1] = value
    drafted.write(tmp_path / "t")
    if rule:
        with pytest.raises(InputError, match=rf"row 7: {column} {rule}"):
            open_transcript(tmp_path / "t")
    else:
        open_transcript(tmp_path / "t")


def test_what_decays_is_read_as_zero(tmp_path):
    """Items that nobody rates may shrink without end; other numbers stay what they are."""
    drafted = draft(SCENARIOS[0])
    drafted.state["factor"][0] = 1e-200
    drafted.messages["gradient"][3, 0] = 5e-324
    drafted.write(tmp_path / "t")
    view = open_transcript(tmp_path / "t").view("server")
    assert view.broadcasts[0].factors[0].tolist() == [0.0, 0.0, 0.0]
    assert view.messages.gradient is not None
    drafted.messages["gradient"][3, 0] = 0.0
    np.testing.assert_array_equal(np.concatenate(view.messages.gradient), drafted.messages["gradient"])


@pytest.mark.parametrize(
    "error", [np.linalg.LinAlgError("x"), OverflowError("x"), KeyError("x"), IndexError()]
)
def test_arithmetic_that_breaks_down_is_abstaining_and_a_slip_is_not(small_view, monkeypatch, error):
    from attacks.closed_form.spectral import Spectral

    def fails(*_: object) -> Reconstruction:
        raise error

    monkeypatch.setattr(Spectral, "attack", fails)
    if isinstance(error, LookupError):
        with pytest.raises(type(error)):
            answered("spectral", None, small_view, 0)
    else:
        found = answered("spectral", None, small_view, 0)
        assert found.abstained.keys() == set(small_view.users.tolist())
        assert "beyond the attack's arithmetic" in next(iter(found.abstained.values()))


def nested(depth: int) -> list:
    return [nested(depth - 1)] if depth else [1]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"rating_levels": [1e28]}, "rating_levels must be within 1e-06..1e\\+06"),
        ({"rating_levels": [1 + k * 1e-12 for k in range(1000)]}, "1e-06 of the largest one apart"),
        ({"upload": {"scale": 1e38}}, "scale must be 0 or of a magnitude in 1e-30..1e\\+30"),
        ({"hyperparameters": {"alpha": 1e300}}, "alpha must be 0 or of a magnitude"),
        ({"defenses": [{"name": "x", "y": nested(900)}]}, "at most 32 deep"),
        ({"defenses": [{"name": []}]}, "the name of a defense must be text"),
        ({"defenses": [{"name": "laplace", "scale": 1e300}]}, "numbers of defenses must be"),
        ({"n_users": 2**31}, "n_users must be"),
        ({"rounds": [10**30]}, "rounds"),
        ({"parties": {"server": -(10**30)}}, "parties"),
    ],
)
def test_the_file_is_refused_in_words(tmp_path: Path, changes, rule):
    """Each rule names what broke it."""
    drafted = draft(SCENARIOS[0])
    drafted.manifest |= changes
    drafted.write(tmp_path / "t")
    with pytest.raises(InputError, match=rule):
        open_transcript(tmp_path / "t")
