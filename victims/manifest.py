"""What is public in a recorded protocol: ``manifest.json`` of transcript version 1."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, field_validator, model_validator

INT32_MAX = 2**31 - 1
Size = Annotated[int, Field(ge=0, le=INT32_MAX)]
Count = Annotated[int, Field(ge=1, le=INT32_MAX)]


class Upload(BaseModel):
    """A row is ``scale * c e p + regularization * q`` (FedMVMF: 1 and 0).

    With ``zeros_if_unrated`` the clients also send a row of zeros for every item that they did not rate.
    """

    model_config = ConfigDict(frozen=True, strict=True)
    scale: FiniteFloat = 1.0
    regularization: FiniteFloat = 0.0
    zeros_if_unrated: bool = False

    @model_validator(mode="after")
    def _check(self) -> Any:
        if self.scale == 0:
            raise ValueError("scale must not be 0, or every upload is empty")
        return self


class Manifest(BaseModel):
    """Public facts of a recording; unknown extra fields are ignored.

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

    @field_validator("hyperparameters", mode="before")
    @classmethod
    def _numbers_only(cls, value: Any) -> Any:
        """Null means unknown; names and flags of other software say nothing that is used here."""
        if not isinstance(value, dict):
            return value
        return {
            name: number
            for name, number in value.items()
            if isinstance(number, int | float) and not isinstance(number, bool)
        }

    @model_validator(mode="after")
    def _check(self) -> Any:
        if len(set(self.rounds)) < len(self.rounds):
            raise ValueError("rounds must not repeat")
        levels = self.rating_levels
        if levels[0] <= 0 or any(b <= a for a, b in pairwise(levels)):
            raise ValueError(f"rating_levels must ascend and be > 0 (0 means unrated), got {levels[:10]}")
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
