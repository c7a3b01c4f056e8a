"""What is public in a recorded protocol: ``manifest.json`` of transcript version 1."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, field_validator, model_validator

from victims.common.limits import (
    DEEPEST,
    FINEST_STEP,
    LARGEST_LEVEL,
    PLAUSIBLE,
    SMALLEST_LEVEL,
    depth_of,
    first_implausible,
    is_plausible,
)

INT32_MAX = 2**31 - 1
Size = Annotated[int, Field(ge=0, le=INT32_MAX)]
Count = Annotated[int, Field(ge=1, le=INT32_MAX)]

CONSTANTS = (  # of all protocols: what ``hyperparameters`` is read for
    "lambda_attributes",
    "lambda_factors",
    "alpha",
    "server_learning_rate",
    "client_learning_rate",
    "learning_rate",
    "regularization",
    "epochs",
    "adam_epsilon",
)
ALIKE = 0.8  # share of letters in common from which a word is another one misspelt


def nearest(key: str, names: Iterable[str]) -> str | None:
    """The known key that an unknown one is taken to be a misspelling of, or None.

    Both have the same letters without case and separators, or as many words, each of which is the same or,
    from three letters on, has four fifths of its letters in common: ``lamda_factors``, ``hyper_parameters``
    and ``regularisation`` are misspelt; ``user_learning_rate`` and ``alpha_decay`` are other software's keys.

    Examples
    --------
    >>> nearest("lamda_factors", CONSTANTS)
    'lambda_factors'
    >>> nearest("user_learning_rate", CONSTANTS) is None
    True
    """
    for name in names:
        if "".join(_words(key)) == "".join(_words(name)):
            return name
        pairs = list(zip(_words(key), _words(name), strict=False))
        same_length = len(_words(key)) == len(_words(name))
        if same_length and all(
            a == b or (min(len(a), len(b)) > 2 and SequenceMatcher(None, a, b).ratio() >= ALIKE)
            for a, b in pairs
        ):
            return name
    return None


def _words(key: str) -> list[str]:
    """``clientLearningRate`` and ``client-learning_rate`` alike."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower().replace("-", "_").replace(" ", "_").split("_")


def _refuse_misspelt(given: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    names = list(keys)
    for key in given:
        if key not in names and (meant := nearest(str(key), names)):
            raise ValueError(f"{where} has no key {key!r}; did you mean {meant!r}?")


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays, tuples and ranges, as those of JSON."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(entry) for entry in value]
    return value


class Upload(BaseModel):
    """A row is ``scale * c e p + regularization * q`` (FedMVMF: 1 and 0).

    With ``zeros_if_unrated`` the clients also send a row of zeros for every item that they did not rate.
    """

    model_config = ConfigDict(frozen=True, strict=True)
    scale: FiniteFloat = 1.0
    regularization: FiniteFloat = 0.0
    zeros_if_unrated: bool = False

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        if isinstance(value, dict):
            _refuse_misspelt(value, cls.model_fields, "upload")
        return _plain(value)

    @model_validator(mode="after")
    def _check(self) -> Any:
        if self.scale == 0:
            raise ValueError("scale must not be 0, or every upload is empty")
        for name in ("scale", "regularization"):
            if not is_plausible(getattr(self, name)):
                raise ValueError(f"{name} must be {PLAUSIBLE}")
        return self


class Manifest(BaseModel):
    """Public facts of a recording.

    Unknown keys are ignored, as is what other software says beside them, unless they are misspellings of a
    known one (``nearest``), here, in ``upload`` and in ``hyperparameters``: such a key is refused, or what it
    says would be taken for unknown. NumPy's numbers and arrays, tuples and ranges are accepted.

    ``hyperparameters`` holds what the protocol publishes: ``lambda_attributes`` (lambda 1),
    ``lambda_factors`` (lambda 2; lambda of FedMF), ``alpha``, ``server_learning_rate``,
    ``client_learning_rate`` (gamma of the clients' step), ``adam_epsilon`` where the server steps with Adam.
    A missing one is unknown to the adversary. ``item_features`` names the features that each item has, where
    everybody knows them (genres, say); None where they are not public.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    format: Literal["factorleak-transcript"]
    version: Literal[1]
    protocol: Annotated[str, Field(min_length=1, max_length=200)]
    update: Literal["semi-als", "sgd"]
    weighting: Literal["observed-only", "include-unrated"]
    n_users: Count
    n_items: Count
    n_attributes: Size
    factors: Annotated[int, Field(ge=1, le=65_536)]
    rounds: Annotated[list[Size], Field(min_length=1, max_length=1_000_000)]
    hyperparameters: dict[str, FiniteFloat] = Field(default_factory=dict)
    upload: Upload = Field(default_factory=Upload)
    rating_levels: Annotated[list[FiniteFloat], Field(min_length=1, max_length=1000)]
    attribute_groups: list[list[Size]] = Field(default_factory=list)
    item_features: list[list[Size]] | None = None
    parties: dict[str, Annotated[int, Field(ge=-INT32_MAX, le=-1)]] = Field(
        default_factory=lambda: {"server": -1}
    )
    adversary: Annotated[str, Field(max_length=200)] = "all"
    defenses: list[dict[str, Any]] = Field(default_factory=list)
    recorded_by: Annotated[str, Field(max_length=1000)] = "unknown"

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        if depth_of(value) > DEEPEST:
            raise ValueError(f"the manifest must be nested at most {DEEPEST} deep")
        if isinstance(value, dict):
            _refuse_misspelt(value, cls.model_fields, "the manifest")
        return _plain(value)

    @field_validator("hyperparameters", mode="before")
    @classmethod
    def _numbers_only(cls, value: Any) -> Any:
        """Null means unknown; names and flags of other software say nothing that is used here."""
        if not isinstance(value, dict):
            return value
        _refuse_misspelt(value, CONSTANTS, "hyperparameters")
        return {
            name: number
            for name, number in value.items()
            if isinstance(number, int | float) and not isinstance(number, bool)
        }

    @field_validator("hyperparameters")
    @classmethod
    def _plausible(cls, value: dict[str, float]) -> dict[str, float]:
        for name in CONSTANTS:
            if not is_plausible(value.get(name, 0.0)):
                raise ValueError(f"{name} must be {PLAUSIBLE}")
        return value

    @field_validator("defenses")
    @classmethod
    def _usable(cls, value: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for entry in value:
            if not isinstance(entry.get("name", ""), str):
                raise ValueError("the name of a defense must be text")
        if (number := first_implausible(value)) is not None:
            raise ValueError(f"numbers of defenses must be {PLAUSIBLE}, got {str(number)[:20]}")
        return value

    @model_validator(mode="after")
    def _check(self) -> Any:
        if len(set(self.rounds)) < len(self.rounds):
            raise ValueError("rounds must not repeat")
        levels = self.rating_levels
        if levels[0] <= 0 or any(b <= a for a, b in pairwise(levels)):
            raise ValueError(f"rating_levels must ascend and be > 0 (0 means unrated), got {levels[:10]}")
        if levels[0] < SMALLEST_LEVEL or levels[-1] > LARGEST_LEVEL:
            raise ValueError(f"rating_levels must be within {SMALLEST_LEVEL:g}..{LARGEST_LEVEL:g}")
        if min((b - a for a, b in pairwise(levels)), default=levels[0]) < FINEST_STEP * levels[-1]:
            raise ValueError(f"rating_levels must be at least {FINEST_STEP:g} of the largest one apart")
        columns = [column for group in self.attribute_groups for column in group]
        if len(set(columns)) < len(columns):
            raise ValueError("attribute_groups must not share a column")
        if self.item_features is not None and len(self.item_features) != self.n_items:
            raise ValueError(
                f"item_features must have a list for each of {self.n_items} items, "
                f"got {len(self.item_features)}"
            )
        if columns and max(columns) >= self.n_attributes:
            raise ValueError(
                f"attribute_groups must name columns below n_attributes = {self.n_attributes}, "
                f"got {max(columns)}"
            )
        return self
