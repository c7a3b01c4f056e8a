"""What rows of a recording are about, and what they hold: the kinds of version 1, and those of a manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from victims.common.declarations import plain, refuse_misspelt

INT32_MAX = 2**31 - 1
KINDS = ("item", "attribute", "item-sum", "attribute-sum")
ITEM, ATTRIBUTE = 0, 1
OPAQUE = len(KINDS)  # the code of every kind that is not among KINDS
IMPLICIT, IMPLICIT_SUM = 6, 8  # on their way to a file; even, for they are of items
IMPLICIT_NAME = "item-implicit"
ITEM_BIAS = "item-bias"  # the change of an item's bias, beside the row about the item
TABLE_ROWS = "table-rows"  # how many rows a client sent of a table: those that are not there carry nothing
RECORDED = (*KINDS, IMPLICIT_NAME)  # kinds in the dictionaries of a recorder's files
OF_IMPLICIT = {"gradient": IMPLICIT, "sum": IMPLICIT_SUM}
WIDEST = 65_536
NUMBERED = {name: code for code, name in enumerate(KINDS)}
OF_FACTORS = {name: NUMBERED[name] for name in KINDS[:2]}  # kinds of state, truth and answers


class Kind(BaseModel):
    """What rows of one kind are.

    Attributes
    ----------
    of : {"item", "attribute", "client", "model"}
        What ``index`` counts: items, attributes, clients, or rows of a parameter that all of them share;
        the last two in rows of role other alone.
    role : {"gradient", "sum", "other"}
        A client's row by itself; a decrypted or secure sum over clients; or what only the recording's own
        readers know (counts, biases, weights of a network): such rows are held, counted and shown, and never
        taken for gradients.
    width : int or None
        Numbers of a row; None is the manifest's ``factors``. Rows with a width have ``value`` in place of
        ``gradient`` or ``factor``.
    implicit : {"gradient", "sum"} or None
        Of rows of role other: they are that of a second table of item factors, the one of implicit feedback.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    of: Literal["item", "attribute", "client", "model"]
    role: Literal["gradient", "sum", "other"] = "gradient"
    width: Annotated[int, Field(ge=1, le=WIDEST)] | None = None
    implicit: Literal["gradient", "sum"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        if isinstance(value, dict):
            refuse_misspelt(value, cls.model_fields, "kinds")
        return plain(value)

    @model_validator(mode="after")
    def _check(self) -> Any:
        if self.role != "other" and self.width is not None:
            raise ValueError("rows of role gradient or sum have as many numbers as factors; leave width out")
        if self.role != "other" and self.of not in OF_FACTORS:
            raise ValueError("rows of role gradient or sum are about items or attributes; use of: item")
        if self.implicit and not (self.role == "other" and self.of == "item" and self.width is None):
            raise ValueError("rows of implicit feedback must be of: item and role: other, without width")
        return self

    @property
    def code(self) -> int:
        """Position in ``KINDS``, or ``OPAQUE``."""
        if self.role == "other":
            return OPAQUE
        return (ATTRIBUTE if self.of == "attribute" else ITEM) + 2 * (self.role == "sum")


LONGEST_NAME = 100
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]


STANDARD: Mapping[str, Kind] = {
    "item": Kind(of="item"),
    "attribute": Kind(of="attribute"),
    "item-sum": Kind(of="item", role="sum"),
    "attribute-sum": Kind(of="attribute", role="sum"),
}


def named_kind(name: str, width: int | None) -> Kind:
    """What rows of a name that nobody declared are taken to be about: its first word says it.

    Examples
    --------
    >>> named_kind("item-mlp", 8).of, named_kind("mlp.0.weight", 16).of
    ('item', 'model')
    """
    of = next((one for one in ("item", "attribute", "client") if name.startswith(one)), "model")
    return Kind(of=of, role="other", width=width)  # type: ignore[arg-type]


def again(name: str) -> str:
    """Name the kind of rows about what their message has a row of already.

    Examples
    --------
    >>> again("item")
    'item-again'
    """
    return f"{name}-again"


RESERVED = (*KINDS[2:], TABLE_ROWS, *map(again, RECORDED))  # names that a recorder gives itself


def with_implicit(sums: bool) -> dict[str, Kind]:
    """The standard kinds, and those of a second table of item factors."""
    second = {IMPLICIT_NAME: Kind(of="item", role="other", implicit="gradient")}
    if sums:
        second[f"{IMPLICIT_NAME}-sum"] = Kind(of="item", role="other", implicit="sum")
    return {**STANDARD, **second}


def of_implicit(kinds: Mapping[str, Kind]) -> dict[str, Kind]:
    """Kinds of rows about a second table of item factors, as they would be of the first one.

    Examples
    --------
    >>> of_implicit({"item": Kind(of="item"), "z": Kind(of="item", role="other", implicit="gradient")})
    {'z': Kind(of='item', role='gradient', width=None, implicit=None)}
    """
    return {name: Kind(of="item", role=kind.implicit) for name, kind in kinds.items() if kind.implicit}


def codes(kinds: Mapping[str, Kind]) -> dict[str, int]:
    """Find the position in ``KINDS``, or ``OPAQUE``, of each declared kind.

    Examples
    --------
    >>> codes({"V": Kind(of="item"), "counts": Kind(of="item", role="other", width=1)})
    {'V': 0, 'counts': 4}
    """
    return {name: kind.code for name, kind in kinds.items()}
