"""Result rows as JUnit XML, which build servers show: a test case for each answer of an attack.

A case fails where a bar of ``--fail-on`` is crossed by its row, is skipped where nothing was tested, and is
an error where the attack failed. Without a bar nothing fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from audit.experiments.strongest import STRONGEST
from audit.registry import is_guess
from audit.scoring.groups import GROUP_METRICS
from victims.common.errors import printable
from victims.common.files import write_text

NOT_TESTED = "NOT TESTED"


def write_junit(
    path: Path, rows: Sequence[Mapping[str, Any]], crossed: Callable[[Mapping[str, Any]], Sequence[str]]
) -> None:
    """Write the file."""
    cases = [
        _case(row, crossed(row))
        for row in rows
        if isinstance(row["attack"], str)
        and not is_guess(row["attack"])
        and (not _describes(row) or crossed(row))
    ]
    tags = [child.tag for case in cases for child in case if child.tag != "system-out"]
    suite = ElementTree.Element("testsuite", name="factorleak", tests=str(len(cases)))
    for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(tags.count(tag)))
    suite.extend(cases)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    write_text(path, ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n")


def _describes(row: Mapping[str, Any]) -> bool:
    """Whether a row is no answer of its own: of a group of clients, or of the strongest answer again."""
    return row["metric"] in GROUP_METRICS or str(row["metric"]).endswith(f"/{STRONGEST}")


def _case(row: Mapping[str, Any], crossed: Sequence[str]) -> ElementTree.Element:
    place = (
        f"{row['victim']}.{row['update']}/{row['weighting']}.{row['defense'] or 'none'}.{row['adversary']}"
    )
    case = ElementTree.Element(
        "testcase", classname=printable(place), name=f"{row['attack']}: {row['metric']}"
    )
    seconds = row["seconds"]
    if isinstance(seconds, float) and math.isfinite(seconds):
        case.set("time", f"{seconds:.3f}")
    reason = printable(row["reason"] or "")
    if crossed:
        words = "; ".join(f"--fail-on {text} is crossed" for text in crossed)
        ElementTree.SubElement(
            case, "failure", type=str(row["verdict"]), message=printable(words)
        ).text = _numbers(row)
    elif row["status"] == "failed":
        ElementTree.SubElement(case, "error", message=reason)
    elif row["status"] != "ran" or row["verdict"] == NOT_TESTED:
        ElementTree.SubElement(case, "skipped", message=f"{NOT_TESTED}: {reason}")
    else:
        ElementTree.SubElement(case, "system-out").text = _numbers(row)
    return case


def _numbers(row: Mapping[str, Any]) -> str:
    return (
        f"value {row['value']} [{row['ci_low']}, {row['ci_high']}], best guess {row['baseline']}, advantage "
        f"{row['advantage']}, verdict {row['verdict']}"
    )
