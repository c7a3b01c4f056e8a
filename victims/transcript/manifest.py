"""What is public in a recorded protocol: as attacks know it (``Manifest``, the file of version 1),
the file of version 2, and JSON Schemas of both for whoever writes the files without this program.

Some rules are beyond a schema, as the reader knows them: keys that are misspelt, ascending levels, distinct
rounds, sizes beside the rows of the tables.
"""

from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, field_validator, model_validator

from victims.common.declarations import plain, refuse_misspelt
from victims.common.errors import InputError
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
from victims.transcript.kinds import INT32_MAX, STANDARD, Kind, Name

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


Size = Annotated[int, Field(ge=0, le=INT32_MAX)]
Count = Annotated[int, Field(ge=1, le=INT32_MAX)]
Party = Annotated[int, Field(ge=-INT32_MAX, le=-1)]

SECURE_SUM = "secure-sum"  # the defense under which uploads have masks that cancel in sums, and nobody a key
AGREEMENTS = ("compare-hashes",)  # defenses that leave every row as it is
SAMPLING = "unrated-sampling"  # the defense that puts rows of unrated items among the others
CONSTANTS = (  # of all protocols: what ``hyperparameters`` is read for
    "lambda_attributes",
    "lambda_factors",
    "alpha",
    "server_learning_rate",
    "client_learning_rate",
    "learning_rate",
    "regularization",
    "step_regularization",
    "epochs",
    "adam_epsilon",
    "implicit_weight",
    "negative_weight",
    "lambda_implicit",
)


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
            refuse_misspelt(value, cls.model_fields, "upload")
        return plain(value)

    @model_validator(mode="after")
    def _check(self) -> Any:
        if self.scale == 0:
            raise ValueError("scale must not be 0, or every upload is empty")
        for name in ("scale", "regularization"):
            if not is_plausible(getattr(self, name)):
                raise ValueError(f"{name} must be {PLAUSIBLE}")
        return self


NOT_OF_VERSION_1 = (
    "declared_rule",
    "scale_known",
    "kinds",
    "roles",
    "anonymous",
    "inferred",
    "links",
    "senders_hidden",
)


class Facts(BaseModel):
    """What the files of both versions say under the same keys, and (``NOT_OF_VERSION_1``) version 2 alone.

    Unknown keys are ignored, as is what other software says beside them, unless they are misspellings of a
    known one (``nearest``): such a key is refused, or what it says would be taken for unknown. NumPy's
    numbers and arrays, tuples and ranges are accepted.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    unsaid: ClassVar[tuple[str, ...]] = ()  # fields that are no keys of the file

    format: Literal["factorleak-transcript"]
    version: Literal[1, 2]
    protocol: Annotated[str, Field(min_length=1, max_length=200)]
    weighting: Literal["observed-only", "include-unrated"]
    n_users: Count
    n_items: Count
    n_attributes: Size
    factors: Annotated[int, Field(ge=1, le=65_536)]
    rounds: Annotated[list[Size], Field(min_length=1, max_length=1_000_000)]
    rating_levels: Annotated[list[FiniteFloat], Field(min_length=1, max_length=1000)]
    attribute_groups: list[list[Size]] = Field(default_factory=list)
    item_features: list[list[Size]] | None = None
    adversary: Annotated[str, Field(max_length=200)] = "all"
    defenses: list[dict[str, Any]] = Field(default_factory=list)
    recorded_by: Annotated[str, Field(max_length=1000)] = "unknown"
    kinds: Annotated[dict[Name, Kind], Field(min_length=1, max_length=100)] = Field(
        default_factory=lambda: dict(STANDARD), exclude=True
    )
    anonymous: bool = Field(default=False, exclude=True)
    links: Literal["plain", "sealed"] = Field(default="plain", exclude=True)
    senders_hidden: bool = Field(default=False, exclude=True)
    inferred: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=1000)] = Field(
        default_factory=list, exclude=True
    )

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        if depth_of(value) > DEEPEST:
            raise ValueError(f"the manifest must be nested at most {DEEPEST} deep")
        if isinstance(value, dict):
            known = [key for key in cls.model_fields if key not in cls.unsaid]
            refuse_misspelt(value, known, "the manifest")
        return plain(value)


class Manifest(Facts):
    """Public facts of a recording, of either version; the file of version 1.

    ``hyperparameters`` holds what the protocol publishes: ``lambda_attributes`` (lambda 1),
    ``lambda_factors`` (lambda 2; lambda of FedMF), ``alpha``, ``server_learning_rate``,
    ``client_learning_rate`` (gamma of the clients' step), ``adam_epsilon`` where the server steps with Adam.
    A missing one is unknown to the adversary. ``item_features`` names the features that each item has, where
    everybody knows them (genres, say); None where they are not public.

    ``NOT_OF_VERSION_1`` are facts that version 2 alone can tell: ``update`` None where the client's rule is
    another or unknown, ``declared_rule``, ``scale_known`` (otherwise ``upload`` stands for unknown numbers),
    the kinds of rows, the roles of parties, whether receivers see who sends, which keys of the rule were
    seen by the recorder rather than declared, whether others can read what is on the links, and whether
    clients do not see who sent what reaches them, though the file says it.
    """

    unsaid = NOT_OF_VERSION_1

    update: Literal["semi-als", "sgd"] | None
    hyperparameters: dict[str, FiniteFloat] = Field(default_factory=dict)
    upload: Upload = Field(default_factory=Upload)
    parties: dict[str, Party] = Field(default_factory=lambda: {"server": -1})
    declared_rule: ClientRule | None = Field(default=None, exclude=True)
    scale_known: bool = Field(default=True, exclude=True)
    roles: dict[str, str] = Field(default_factory=dict, exclude=True)

    @property
    def rule(self) -> ClientRule:
        """How clients turn ratings into uploads, as far as it is declared."""
        if self.declared_rule is not None:
            return self.declared_rule
        assert self.update is not None
        return of_version_1(self.update, self.upload.zeros_if_unrated)

    def of_rows(self) -> Manifest:
        """The same, with those defenses alone that change rows."""
        left = [entry for entry in self.defenses if entry.get("name") not in AGREEMENTS]
        return self.model_copy(update={"defenses": left})

    @property
    def unrated_rows(self) -> bool:
        """Whether rows of zeros about unrated items lie among those of an observed-only protocol: of all of
        them, or of some that clients sample (defense ``unrated-sampling``)."""
        return self.upload.zeros_if_unrated or (self.weighting == "observed-only" and self.samples_unrated)

    @property
    def draws_negatives(self) -> bool:
        """Whether clients send rows of items that they did not rate, drawn as negatives (``negatives``)."""
        drawn = (self.rule.model_extra or {}).get("negatives", 0)
        return isinstance(drawn, int | float) and drawn > 0

    @property
    def samples_unrated(self) -> bool:
        """Whether clients sample some unrated items to send rows of."""
        return any(entry.get("name") == SAMPLING for entry in self.defenses)

    @property
    def masked(self) -> bool:
        """Whether uploads have masks that cancel in sums, so that no key opens those of others."""
        return any(entry.get("name") == SECURE_SUM for entry in self.defenses)

    @property
    def withholds_ratings(self) -> bool:
        """Whether clients train on some of their ratings without sending anything that they change: of a
        share of the pairs that count as implicit feedback (``positive_share``)."""
        share = (self.rule.model_extra or {}).get("positive_share", 0)
        return isinstance(share, int | float) and share > 0

    @property
    def rule_name(self) -> str:
        """The clients' rule, for people: ``semi-als``, ``sgd``, another name, or ``unknown``."""
        return self.update or self.rule.rule or "unknown"

    @property
    def title(self) -> str:
        """What was recorded, for people: a system by its name, or a protocol and how it was set."""
        if self.rule_name != "unknown":
            return f"{self.protocol} {self.rule_name}/{self.weighting}"
        return self.protocol if self.protocol != "unknown" else f"a program of its own/{self.weighting}"

    @field_validator("hyperparameters", mode="before")
    @classmethod
    def _numbers_only(cls, value: Any) -> Any:
        """Null means unknown; names and flags of other software say nothing that is used here."""
        if not isinstance(value, dict):
            return value
        refuse_misspelt(value, CONSTANTS, "hyperparameters")
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
        if self.update is None and self.declared_rule is None:
            raise ValueError("update must be semi-als or sgd in version 1")
        if len(set(self.rounds)) < len(self.rounds):
            again = next(number for number, times in Counter(self.rounds).items() if times > 1)
            raise ValueError(f"rounds must not repeat, got {again} more than once")
        levels = self.rating_levels
        if levels[0] <= 0 or any(b <= a for a, b in pairwise(levels)):
            raise ValueError(f"rating_levels must ascend and be > 0 (0 means unrated), got {levels[:10]}")
        if levels[0] < SMALLEST_LEVEL or levels[-1] > LARGEST_LEVEL:
            raise ValueError(
                f"rating_levels must be within {SMALLEST_LEVEL:g}..{LARGEST_LEVEL:g}, got {levels[0]:g} to "
                f"{levels[-1]:g}"
            )
        if min((b - a for a, b in pairwise(levels)), default=levels[0]) < FINEST_STEP * levels[-1]:
            raise ValueError(
                f"rating_levels must be at least {FINEST_STEP:g} of the largest one apart, got {levels[:10]}"
            )
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


SCALE, PULL = "upload_scale", "upload_regularization"
ROLES = ("server", "item_server", "helper", "decrypter", "other")


class NamedParty(BaseModel):
    """A party that is no client.

    Attributes
    ----------
    id : int
        Below 0; its number in ``messages.arrow``.
    role : {"server", "item_server", "helper", "decrypter", "other"}
    """

    model_config = ConfigDict(frozen=True, strict=True)

    id: Party
    role: Literal["server", "item_server", "helper", "decrypter", "other"] = "other"


class Manifest2(Facts):
    """The file of version 2; see the handbook's page on transcripts for the meaning of each key.

    Unknown keys of ``rule`` are kept, where they tell that there is more to the rule.
    """

    version: Literal[2]
    protocol: Annotated[str, Field(min_length=1, max_length=200)] = "unknown"
    rule: ClientRule = Field(default_factory=ClientRule)
    constants: dict[str, Any] = Field(default_factory=dict)
    n_attributes: Size = 0
    parties: dict[str, Party | NamedParty] = {"server": -1}

    @model_validator(mode="before")
    @classmethod
    def _known_constants(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("constants"), dict):
            refuse_misspelt(value["constants"], (*CONSTANTS, SCALE, PULL), "constants")
        return value

    @model_validator(mode="after")
    def _check(self) -> Any:
        numbers = list(self.numbers().values())
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"parties must not share an id, got {str(numbers)[:80]}")
        for name in (*CONSTANTS, SCALE, PULL):  # here, where they have the names that the file uses
            number = self.constants.get(name)
            if number is None:  # unknown
                continue
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise ValueError(
                    f"{name} of constants must be a number, got {str(number)[:20]}; leave it out if unknown"
                )
            if not is_plausible(number):
                raise ValueError(f"{name} of constants must be {PLAUSIBLE}, got {str(number)[:20]}")
        if self.constants.get(SCALE) == 0:
            raise ValueError(f"{SCALE} of constants must not be 0, or every upload is empty")
        return self

    def numbers(self) -> dict[str, int]:
        """The id of each party that is no client."""
        return {name: party if isinstance(party, int) else party.id for name, party in self.parties.items()}

    def as_manifest(self) -> Manifest:
        """The same facts, as attacks know them."""
        constants = dict(self.constants)
        scale, pull = (constants.pop(name, None) for name in (SCALE, PULL))
        upload = {"zeros_if_unrated": self.rule.rows != "rated"}
        upload |= {} if scale is None else {"scale": scale}
        upload |= {} if pull is None else {"regularization": pull}
        roles = {name: name if isinstance(party, int) else party.role for name, party in self.parties.items()}
        parties = self.numbers()
        for name, role in roles.items():  # adversaries are known by their roles
            parties.setdefault(role, parties[name])
        return Manifest(
            **{name: getattr(self, name) for name in Facts.model_fields},
            update=self.rule.rule if self.rule.rule in ("semi-als", "sgd") else None,  # type: ignore[arg-type]
            hyperparameters=constants,
            upload=upload,  # type: ignore[arg-type]
            parties=parties,
            declared_rule=self.rule,
            scale_known=scale is not None,
            roles=roles,
        )


def read_either(content: dict[str, Any]) -> Manifest:
    """Read the content of ``manifest.json``; what version 2 alone can tell means nothing in version 1."""
    if content.get("version") == 2:
        return Manifest2.model_validate(content).as_manifest()
    return Manifest.model_validate({key: one for key, one in content.items() if key not in NOT_OF_VERSION_1})


def file_of(manifest: Manifest) -> dict[str, Any]:
    """The content of ``manifest.json`` in the version that the manifest names."""
    content = manifest.model_dump()
    if manifest.version == 1:
        return content
    for name in ("update", "hyperparameters", "upload"):
        del content[name]
    constants: dict[str, float] = dict(manifest.hyperparameters)
    if manifest.scale_known:
        constants |= {SCALE: manifest.upload.scale, PULL: manifest.upload.regularization}
    return content | {
        "rule": manifest.rule.model_dump(exclude_none=True),
        "constants": constants,
        "kinds": {name: kind.model_dump(exclude_none=True) for name, kind in manifest.kinds.items()},
        "anonymous": manifest.anonymous,
        **({"links": manifest.links} if manifest.links != "plain" else {}),
        **({"senders_hidden": True} if manifest.senders_hidden else {}),
        **({"inferred": manifest.inferred} if manifest.inferred else {}),
        "parties": {
            name: {"id": number, "role": role if role in ROLES else "other"}
            for name, number in manifest.parties.items()
            if (role := manifest.roles.get(name, "" if manifest.roles else name))  # no second name of a party
        },
    }


DIALECT = "https://json-schema.org/draft/2020-12/schema"
MODELS: dict[int, type[Facts]] = {1: Manifest, 2: Manifest2}
PARTS: tuple[type[BaseModel], ...] = (ClientRule, Kind, NamedParty, Upload)


def schema_of(version: int) -> dict[str, Any]:
    """Make the JSON Schema of one version.

    Examples
    --------
    >>> schema_of(2)["properties"]["n_users"]["minimum"]
    1
    """
    if version not in MODELS:
        raise InputError(f"the version of a transcript must be 1 or 2, got {version}")
    found = _without_titles(MODELS[version].model_json_schema())
    for name in MODELS[version].unsaid:
        del found["properties"][name]
    found["properties"]["version"] = {"const": version, "type": "integer"}
    if version == 1:
        found["properties"]["update"] = {"enum": ["semi-als", "sgd"], "type": "string"}
    used = json.dumps(found["properties"])
    found["$defs"] = {name: part for name, part in found["$defs"].items() if f"#/$defs/{name}" in used}
    for part in PARTS:
        if part.__name__ in found["$defs"]:
            _describe(found["$defs"][part.__name__], part)
    about = f"manifest.json of factorleak's transcript, version {version}"
    return {"$schema": DIALECT, "title": about, **{k: v for k, v in found.items() if k != "description"}}


def schema_text(version: int) -> str:
    """Write the JSON Schema of one version, as the handbook has it."""
    return json.dumps(schema_of(version), indent=2) + "\n"


def _without_titles(schema: Any) -> Any:
    """Names once: pydantic repeats each as a title."""
    if isinstance(schema, list):
        return [_without_titles(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_titles(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }


def _describe(schema: dict[str, Any], part: type[BaseModel]) -> None:
    """What the docstring's section of attributes says of each key."""
    text = inspect.cleandoc(part.__doc__ or "")
    schema["description"] = text.split("\n\n")[0].replace("\n", " ")
    for names, said in re.findall(r"^([\w, ]+) : .*\n((?:    .+\n?)+)", text, flags=re.MULTILINE):
        for name in names.split(", "):
            schema["properties"][name]["description"] = " ".join(said.split())
