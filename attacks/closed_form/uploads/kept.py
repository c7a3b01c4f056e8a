"""What rows said is kept for a moment, for they are asked again.

What clients tell together (``attacks.closed_form.common_numbers``) is asked of the same rows under one
declaration after another, and round by round once it is known. Most of what differs between two questions
(what is taken off the ratings, say) changes nothing in the order of the steps, which takes most of the time;
and often nothing differs at all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import wraps
from hashlib import blake2b
from threading import Lock
from typing import Any

import numpy as np

_every: list[OrderedDict[Hashable, Any]] = []  # what functions keep


def kept(size: int, depends_on: Callable[..., Sequence[Any]] | None = None) -> Callable[[Callable], Callable]:
    """Keep the last answers of a function whose answer is a tuple of arrays with names.

    Arrays are compared by the bytes that they hold, anything else by ``==``.

    Examples
    --------
    >>> from typing import NamedTuple
    >>> class Twice(NamedTuple):
    ...     value: np.ndarray
    >>> @kept(1)
    ... def twice(one):
    ...     print("computed")
    ...     return Twice(2 * one)
    >>> [twice(np.array([1.0])).value.item() for _ in range(2)]
    computed
    [2.0, 2.0]
    """

    def decorated(function: Callable) -> Callable:
        known: OrderedDict[Hashable, Any] = OrderedDict()
        lock = Lock()
        _every.append(known)

        @wraps(function)
        def call(*args: Any) -> Any:
            key = tuple(map(_compared, args if depends_on is None else depends_on(*args)))
            with lock:
                if key in known:
                    known.move_to_end(key)
                    return _copied(known[key])
            found = function(*args)
            with lock:
                known[key] = _copied(found)
                while len(known) > size:
                    known.popitem(last=False)
            return found

        return call

    return decorated


def forget() -> None:
    """Forget all that is kept in this process: a second call is timed as the first one was."""
    for known in _every:
        known.clear()


class _Other:
    """What has no hash of its own, a manifest say, under that of its kind."""

    def __init__(self, held: object) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Other) and bool(other.held == self.held)

    def __hash__(self) -> int:
        return hash(type(self.held))


def _compared(value: Any) -> Hashable:
    """What two values have in common that a function answers alike."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, blake2b(value.tobytes(), digest_size=16).digest()
    return value if value is None or isinstance(value, bool | int | float | str) else _Other(value)


def _copied(found: Any) -> Any:
    return type(found)(*(part.copy() for part in found))
