"""What a recording declares of the clients' rule: each key is a fact, and an absent one is unknown."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from victims.common.limits import PLAUSIBLE, is_plausible
from victims.transcript.spelling import plain, refuse_misspelt

Steps = Annotated[int, Field(ge=1, le=1_000_000)]


class ClientRule(BaseModel):
    """How clients turn their ratings into uploads, as far as it is public; None is unknown.

    Attributes
    ----------
    rule : str
        ``sgd`` (a gradient step of the client's factor), ``semi-als`` (it solves for its factor), the name of
        a rule of another package, or any name that tells readers what it was.
    order : {"batch", "per-rating"}
        Whether the client's factor moves once per step, or after every rating of it.
    local_steps : int
        Steps, or passes over the ratings, between broadcast and upload.
    batch_size : int or "all"
        Ratings of one step.
    reduction : {"sum", "mean"}
        Over the ratings of a step.
    upload : {"gradient", "delta", "weights"}
        What a row is: the gradient, the change of the client's copy of the factor, or that copy.
    rows : {"rated", "all"}
        Whether clients upload rows of the items that they rated, or of all items, where those that carry
        nothing (zeros; for ``weights``, what was broadcast) may be left out of the file.
    loss : {"squared", "logistic", "bernoulli", "bpr"}
    link : {"identity", "sigmoid"}
        Between the product of the factors and the prediction.
    clip : [low, high] or "none"
        Ratings, or errors, are clipped to this interval.
    moves_items : bool
        Whether the client steps its own copy of the item factors between its local steps.
    start : {"kept", "fresh"}
        Whether the client's factor goes on from round to round.

    Other keys (``momentum``, say) are kept: attacks must know that there is more to the rule.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")

    rule: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    order: Literal["batch", "per-rating"] | None = None
    local_steps: Steps | None = None
    batch_size: Steps | Literal["all"] | None = None
    reduction: Literal["sum", "mean"] | None = None
    upload: Literal["gradient", "delta", "weights"] | None = None
    rows: Literal["rated", "all"] | None = None
    loss: Literal["squared", "logistic", "bernoulli", "bpr"] | None = None
    link: Literal["identity", "sigmoid"] | None = None
    clip: Annotated[list[FiniteFloat], Field(min_length=2, max_length=2)] | Literal["none"] | None = None
    moves_items: bool | None = None
    start: Literal["kept", "fresh"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        if isinstance(value, dict):
            refuse_misspelt(value, cls.model_fields, "rule")
        return plain(value)

    @model_validator(mode="after")
    def _check(self) -> Any:
        if isinstance(self.clip, list) and not self.clip[0] < self.clip[1]:
            raise ValueError("clip must be [low, high] with low < high")
        if isinstance(self.clip, list) and not all(map(is_plausible, self.clip)):
            raise ValueError(f"clip must be numbers of {PLAUSIBLE}")
        return self

    @property
    def beyond(self) -> tuple[str, ...]:
        """Keys that the format does not know."""
        return tuple(self.model_extra or ())

    def unknown(self) -> tuple[str, ...]:
        """Names of the keys that were not declared.

        Examples
        --------
        >>> ClientRule(rule="sgd", order="batch", local_steps=1).unknown()[:3]
        ('batch_size', 'reduction', 'upload')
        """
        return tuple(name for name in type(self).model_fields if getattr(self, name) is None)


def of_version_1(update: str, zeros_if_unrated: bool) -> ClientRule:
    """State what version 1 means by an update: one step over all ratings, a sum, squared loss."""
    return ClientRule(
        rule=update,
        order="batch",
        local_steps=1,
        batch_size="all",
        reduction="sum",
        upload="gradient",
        rows="all" if zeros_if_unrated else "rated",
        loss="squared",
        link="identity",
        clip="none",
        moves_items=False,
        start="kept",
    )
