"""Every rule keeps its bounds, and the one message names all four things that it promises."""

from dataclasses import dataclass

import numpy as np
import pytest

from victims.common.errors import InputError
from victims.common.validation import (
    above,
    at_least,
    between,
    each,
    in_half_open,
    one_of,
    or_none,
    positive_share,
    require,
    require_fields,
    strictly_between,
)

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (at_least(0), [0, 0.5, 1e300], [-1e-300, INF, NAN, "1", None]),
        (above(0), [1e-300, 1], [0, -1, INF, NAN, "1"]),
        (between(1, 4), [1, 4, np.int64(2)], [0, 5, NAN, np.arange(3)]),
        (strictly_between(0, 1), [0.5], [0, 1, NAN]),
        (in_half_open(0, 1), [0, 0.99], [1, -0.1, NAN]),
        (positive_share(), [1, 1e-9], [0, 1.1, NAN]),
        (one_of("a", "b"), ["a", "b"], ["c", "", None, 1]),
        (or_none(above(0)), [None, 1], [0, NAN]),
        (each(at_least(1)), [(1, 2), [3]], [(), (0, 1), None, 3]),
        (each(at_least(1), fewest=2), [(1, 2)], [(), (1,), (0,), (1, 0)]),
    ],
)
def test_bounds(rule, good, bad):
    assert all(rule.holds(value) for value in good)
    for value in bad:
        with pytest.raises(InputError, match="size of box must be"):
            require("box", "size", value, rule)


def test_message_names_name_thing_rule_value_and_remedy():
    @dataclass(frozen=True)
    class Box:
        size: float = 2.0

    require_fields(Box(), "box", size=above(0))
    with pytest.raises(InputError) as error:
        require_fields(Box(-1.0), "box", size=above(0))
    assert str(error.value) == "size of box must be > 0, got -1.0; the default is 2.0"
