"""Numbers, values of JSON and keys of a manifest that readers do not expect."""

from __future__ import annotations

from typing import Any

from tests.contract.version_2 import CONSTANTS, N_ITEMS, RULE

WHOLE = (-(2**63), -(2**31), -(2**31) + 1, -3, -2, -1, 0, 1, 3, 4, 5, 6, 100, 2**31 - 1, 2**31, 2**62)
NUMBERS = (
    *(float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 5e-324, 1e-31, 1e-8, 1.0),
    *(1e8, 1e30, 1.1e30, 1e150, 1.7e308, -1e30),
)
JSON = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 10**6, 2**31 - 1, 2**31, 10**30, -(10**30), 0.5, 1e300, -1e-300),
    *(float("nan"), float("inf"), "", "x", "sgd", "weights", "all", "none", "kept", "x" * 5000, "\x00\ud800"),
    *(
        [],
        {},
        [[]],
        [0],
        [1, 2],
        [2, 1],
        [1, 1],
        [-1],
        [None],
        ["x"],
        [1e-7, 1],
        [1e30],
        list(range(1, 1002)),
    ),
    *(
        {"x": 1},
        {"server": -1},
        {"server": 0},
        {"item": {"of": "item"}},
        {"item": {"of": "item", "role": "sum"}},
    ),
    *([{}], [{"name": "laplace", "scale": 1e30}], [{"name": "x"}] * 2000, [[0, 1], [1, 2]]),
)


CONTRADICTIONS: tuple[tuple[str, Any], ...] = (
    *(("rule", {key: value}) for key in RULE for value in ("x", None, 2, 10**30, [1, 2], True)),
    *(("rule", {"clip": value}) for value in ([2, 1], [1, 2, 3], ["x", 1], [0, 1e300], "all")),
    *(("rule", {key: value}) for key, value in (("rows", "all"), ("rows", "rated"), ("momentum", 0.9))),
    *(("rule", {"upload": value}) for value in ("weights", "delta")),
    *(("rule", {"reduction": "mean", "upload": value}) for value in ("weights", "gradient")),
    *(("rule", {"rule": value}) for value in ("semi-als", "x", "")),
    *(
        ("constants", {name: value})
        for name in (*CONSTANTS, "alpha", "upload_regularization")
        for value in JSON[:17]
    ),
    *(
        ("parties", {name: value})
        for name in ("server", "peer")
        for value in (-1, -2, 0, -(2**31), {"id": -9})
    ),
    *(
        ("parties", {"p": value})
        for value in ({"id": -4, "role": "decrypter"}, {"id": -4, "role": "x"}, {"id": 1})
    ),
    *(("parties", {f"p{number}": -number - 2 for number in range(n)}) for n in (1, 3000)),
    *(("kinds", {"item": {"of": "attribute"}}), ("kinds", {"item": {"of": "item", "role": "other"}})),
    *(
        ("kinds", {"x": {"of": "item"}}),
        ("kinds", {"item": {"of": "item", "width": 3}}),
        ("kinds", {"x": {}}),
    ),
    *(("kinds", {f"k{number}": {"of": "item"} for number in range(101)}),),
    *(("anonymous", value) for value in (True, 1)),
    *(("weighting", value) for value in ("include-unrated", "x")),
    *(("n_users", value) for value in (1, 3, 5, 2**24, 2**24 + 10**6, 2**31 - 1, 10**30)),
    *(("n_items", value) for value in (1, 5, 7, 2**24, 2**24 + 10**6, 2**31 - 1)),
    *(("n_attributes", value) for value in (0, 2, 3, 100, 2**16, 2**16 + 10**5, 2**31 - 1)),
    *(("factors", value) for value in (1, 3, 65_536, 65_537)),
    *(
        ("rounds", value)
        for value in ([0], [1, 0], [0, 0, 1], [0, 1, 2**31 - 1], list(range(300_000)), [0, 2])
    ),
    *(
        ("rating_levels", value)
        for value in ([1], [0.5, 5], [3, 2], [1, 1 + 1e-9], [-1, 1], list(range(1, 101)))
    ),
    *(("attribute_groups", value) for value in ([[0]], [[], []], [[0, 0]], [[2, 1, 0]])),
    *(
        ("item_features", value)
        for value in ([[]] * N_ITEMS, [[0]] * N_ITEMS, [[2**31 - 1]] * N_ITEMS, [[0]])
    ),
    *(("adversary", value) for value in ("server", "client:1", "client:99", "nobody")),
    *(
        ("defenses", [{"name": name, "scale": 0.1, "noise": "fresh"}])
        for name in ("laplace", "gaussian", "stretching")
    ),
    *(("version", value) for value in (1, 3, 2.0, "2")),
)
