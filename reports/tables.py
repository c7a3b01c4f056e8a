"""The tables of the commands, of result rows; those of the papers are in ``paper_tables``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np

from reports.layout import Sheet
from reports.verdicts import (
    AGREEMENT,
    ANSWERED,
    BOUND,
    CLAIMED,
    DIFFERENCES,
    DISTORTION,
    LEAKS,
    NOT_TESTED,
    OF_WHAT,
    QUALITY,
    RELATIVE,
    SENT,
    SIZES,
    Leak,
    Row,
    answered_share,
    by_adversary,
    folded,
    grouped,
    interval_of,
    is_guess,
    is_inferred,
    kinds_of,
    leak_cell,
    leak_of,
    number,
    numbers_of,
    of_what,
    strongest,
    tested,
    values_of,
    verdict_of,
    why_not,
    why_nothing,
    worst_cell,
)
from reports.words import idle_of, scenario_of

# What attacks answer

OF_MEMBERSHIP = ("_membership_auc", "_membership_tpr_at_fpr_1pct", "_membership_tpr_at_fpr_0.1pct")
SHOWN = (
    "rating_accuracy",
    "rated_rating_accuracy",
    "rated_set_auc",
    "attribute_group_accuracy",
    CLAIMED,
    *RELATIVE,
    "factor_cosine",
    "factor_relative_error",
    ANSWERED,
    *(f"{metric}{name}" for metric in ("rating", "user") for name in OF_MEMBERSHIP),
)


def audit_table(rows: Sequence[Row], title: str) -> Sheet:
    """Tabulate a block for each scenario and attack: a line and a verdict for each of the main metrics."""
    idle = idle_of(rows)
    shown = [
        row
        for row in rows
        if (row["metric"] in SHOWN or is_inferred(row))
        and (row["status"] != "ran" or verdict_of(row) or is_guess(row))
        and (scenario_of(row), str(row["attack"])) not in idle
    ]
    lines = [
        (
            scenario_of(row),
            attack,
            "" if number(row["seconds"]) == "-" else f"{row['seconds']:.2f} s",
            row["metric"],
            *(numbers_of(row)[name] for name in ("value", "interval", "baseline", "ceiling", "answered")),
            verdict_of(row),
            why_not(row),
        )
        for attack, (row, *_) in folded(shown, lambda row: str(row["attack"]), _silence)
    ]
    heads = ("scenario", "attack", "seconds", "metric", "value", "95 % interval", "guess", "ceiling")
    sheet = Sheet(
        title=title,
        columns=(*heads, "answered", "verdict", "reason"),
        rows=lines,
        right=("value", "95 % interval", "guess", "ceiling", "answered"),
        blocks=3,
        stacks=(("value", "95 % interval"), ("guess", "ceiling")),
        note="reason",
    )
    trivial = {"-", number(0.0), number(1.0)}
    return sheet.without("ceiling") if set(sheet.column("ceiling")) <= trivial else sheet


def _silence(row: Row) -> tuple[str, ...] | None:
    """Why an attack did not run, and where; None of one that ran."""
    if row["status"] == "ran":
        return None
    return tuple(str(row[name]) for name in ("update", "weighting", "metric", "status", "reason"))


def score_table(rows: Sequence[Row], title: str) -> Sheet:
    """Tabulate every metric of one reconstruction."""
    lines = [
        (
            row["metric"],
            *(numbers_of(row, 4)[name] for name in ("value", "interval", "baseline")),
            row["baseline_name"],
            *(numbers_of(row)[name] for name in ("ceiling", "ceiling_ml", "answered")),
            verdict_of(row),
            numbers_of(row)["advantage"],
            why_not(row),
        )
        for row in ({"status": "ran", "reason": "", **row} for row in rows)
    ]
    heads = ("metric", "value", "95 % interval", "best guess", "which", "ceiling", "ceiling ML", "answered")
    return Sheet(
        title=title,
        columns=(*heads, "verdict", "advantage", "reason"),
        rows=lines,
        right=heads[1:4] + heads[5:] + ("advantage",),
        stacks=(
            ("metric", "answered"),
            ("value", "95 % interval"),
            ("best guess", "which"),
            ("ceiling", "ceiling ML"),
            ("verdict", "advantage"),
        ),
        note="reason",
    )


def reliability_table(bins: Sequence[Row]) -> Sheet:
    """Tabulate what an attack claimed of its answers, beside the share that is right."""
    lines = [
        (
            row["what"],
            f"{row['least']:g} to {row['below']:g}",
            f"{row['answers']:,}",
            str(row["clients"]),
            number(row["claimed"]),
            number(row["right"]),
            f"[{number(row['right_low'])}, {number(row['right_high'])}]",
        )
        for row in bins
    ]
    numbers = ("probability", "answers", "clients", "claimed", "right", "95 % interval")
    title = "Reliability of the attack's probabilities"
    return Sheet(title, ("answers about", *numbers), lines, right=numbers)


def clients_table(rows: Sequence[Row], title: str) -> Sheet:
    """Tabulate of whom how much is recovered, those of whom most is first."""
    shares = ("recovered", "guess", "claim")
    order = sorted(rows, key=lambda row: (number(row["recovered"]) == "-", -np.nan_to_num(row["recovered"])))
    lines = [
        (
            *([str(row["name"])] if "name" in row else []), str(row["client"]), str(row["items"]),
            *(number(row[name]) for name in shares), str(row["what"]), str(row["attack"]),
        )
        for row in order
    ]  # fmt: skip
    named = ("name",) if rows and "name" in rows[0] else ()
    numbers = ("client", "items", *shares)
    return Sheet(title, (*named, *numbers, "of", "attack"), lines, right=numbers)


def sweep_table(rows: Sequence[Row], title: str, attack: str) -> Sheet:
    """Tabulate scenarios, scales and numbers of rounds: value, interval, guess, ceiling and its share."""
    metric = "rating_accuracy"
    lines = []
    for row in rows:
        if row["attack"] != attack or row["metric"] != metric:
            continue
        found = numbers_of(row)
        known = found["ceiling"] != "-" and row["ceiling"] > 0
        lines.append(
            (
                scenario_of(row),
                str(row["defense"]).rpartition("=")[2],
                str(row["rounds"]),
                *(found[name] for name in ("value", "interval", "baseline", "ceiling", "ceiling_ml")),
                number(row["value"] / row["ceiling"]) if known else "-",
                found["answered"],
                verdict_of(row),
                why_not(row),
            )
        )
    heads = ("scenario", "b", "rounds", metric, "95 % interval", "best guess", "ceiling", "ceiling ML")
    return Sheet(
        title=title,
        columns=(*heads, "of it", "answered", "verdict", "reason"),
        rows=lines,
        right=(*heads[1:], "of it", "answered"),
        blocks=1,
        stacks=((metric, "95 % interval"), ("ceiling", "ceiling ML")),
        note="reason",
    )


# Defenses side by side

SECONDS = ("seconds_local_update", "seconds_encryption", "seconds_decryption")
LEGENDS = {
    CLAIMED: "the attack does not learn whose rows it reads; the value is the share of the ratings it claims "
    "that one client really gave",
    DIFFERENCES: "rows do not tell by how many levels all ratings of a client are to be shifted; the value "
    "is the share of its pairs of ratings whose difference is right",
    SIZES: "rows do not tell which of two ratings is the higher; the value is the share of a client's pairs "
    "of ratings that are as far from each other as is said",
}


def comparison_table(rows: Sequence[Row], title: str) -> Sheet:
    """Tabulate the strongest answer to each question, and the worst of them, by defense and adversary."""
    kinds = kinds_of(rows)
    lines: list[tuple[str, ...]] = []
    shown: list[Leak] = []
    for defense, of_defense in grouped(rows, "defense").items():
        for line, (who, leaks) in enumerate(_readers(of_defense, kinds)):
            shown += leaks
            name = f"{defense}\n{who}" if line == 0 else who
            lines.append((name, *map(leak_cell, leaks), worst_cell(leaks)))
    there = {leak.row["metric"] for leak in shown if leak.row is not None}
    caption = ["value (best guess without the transcript), 95 % interval, verdict, attack"]
    caption += [f"({OF_WHAT[metric]}): {words}" for metric, words in LEGENDS.items() if metric in there]
    heads = ("defense\nadversary", *(LEAKS[metric] for metric in kinds), "worst\nadvantage")
    return Sheet(title, heads, lines, caption="\n".join(caption))


def _readers(rows: Sequence[Row], kinds: Sequence[str]) -> list[tuple[str, list[Leak]]]:
    """Adversaries and what they read; those who read the same share a line."""
    lines: dict[tuple[str, ...], tuple[list[str], list[Leak]]] = {}
    for adversary, seen in by_adversary(rows).items():
        leaks = [leak_of(seen, metric) for metric in kinds]
        lines.setdefault(tuple(map(leak_cell, leaks)), ([], leaks))[0].append(adversary)
    failed = [row for row in rows if row["metric"] == "leakage"]
    if failed:
        lines[("failed",)] = (["all"], [leak_of(failed, metric) for metric in kinds])
    return [("\n".join(names), leaks) for names, leaks in lines.values()]


def recorded_table(rows: Sequence[Row], title: str) -> Sheet:
    """Tabulate what defenses of recorded uploads leave, and how far they bend the sums."""
    with_truth = not any(row["metric"] == ANSWERED for row in rows)
    kinds = kinds_of(rows) if with_truth else [ANSWERED, AGREEMENT]
    lines = []
    for (defense, rounds), here in grouped(rows, "defense", "rounds").items():
        found = [strongest(here, kind) for kind in kinds]
        bent = values_of(here, DISTORTION)
        lines.append(
            (
                str(defense),
                str(rounds),
                f"{bent[0]:.3g}" if bent.size else "-",
                *(NOT_TESTED if row is None else leak_cell(Leak(row["metric"], row, "")) for row in found),
                "-" if found[0] is None else f"{100 * answered_share(found[0]):.0f} %",
            )
        )
    names = LEAKS if with_truth else {ANSWERED: "clients answered", AGREEMENT: "same answers as undefended"}
    caption = "value (best guess without the transcript), 95 % interval, verdict, attack"
    if not with_truth:
        caption = (
            "without truth: share of clients whom an attack answers (the same on shuffled uploads), and of "
            "its answers those that are as on the undefended recording (best guess of these)"
        )
    heads = ("defense", "rounds", "distortion", *(names[kind] for kind in kinds), "answered")
    return Sheet(title, heads, lines, right=("rounds", "distortion", "answered"), caption=caption)


def cost_of_defenses_table(rows: Sequence[Row], title: str) -> Sheet:
    """Tabulate how well the recommender ranks, and a client's seconds and bytes of a round, by defense."""
    lines = []
    for defense, of_defense in grouped(rows, "defense").items():
        values, sent = values_of(of_defense, QUALITY), values_of(of_defense, SENT)
        quality = [why_nothing([row for row in of_defense if row["metric"] == "quality"]), "-"]
        if values.size:
            popularity = np.mean([row["baseline"] for row in of_defense if row["metric"] == QUALITY])
            quality = [_mean_and_sd(values), f"{popularity:.3f}"]
        cost = [why_nothing([row for row in of_defense if row["metric"] == "cost"]), "-"]
        if sent.size:
            seconds = sum(float(values_of(of_defense, metric)[0]) for metric in SECONDS)
            cost = [f"{seconds:.3g}", f"{sent[0] / 1e6:.3g}"]
        lines.append((defense, *quality, *cost))
    numbers = ("NDCG@10 (sd)", "popularity", "client: s", "MB a round")
    return Sheet(title, ("defense", *numbers), lines, right=numbers)


def _mean_and_sd(values: Sequence[float] | np.ndarray, digits: int = 3) -> str:
    found = [float(value) for value in values]
    spread = stdev(found) if len(found) > 1 else math.nan
    return f"{number(fmean(found), digits)} ({number(spread, digits)})"


# Claimed epsilons

READ = "ratings read: best attack"
LEGEND = (
    "empirical epsilon: one-run lower bounds at 95 %, for all planted ratings and for the third with the "
    "smallest claims, each beside its largest claim; [most that so many ratings can show]; then from "
    "repetitions for one client, if asked for"
)


def claims_table(rows: Sequence[Row], title: str) -> Sheet:
    """Tabulate one line per protocol, reading of the noise and view."""
    lines = [
        line
        for (protocol, defense), of_system in grouped(rows, "victim", "defense").items()
        for line in _claims_of(
            (str(protocol), option_of(defense, "noise"), option_of(defense, "epsilon")), of_system
        )
    ]
    heads = ("protocol", "noise", "eps", "view", "proved for the median item", "empirical eps (claim)")
    return Sheet(title, (*heads, "verdict", READ, "MSE (mean)"), lines, caption=LEGEND)


def _claims_of(names: tuple[str, ...], rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """A failure, then a line per view of the recommender, then one of a fellow client."""
    errors = [row for row in rows if row["metric"] == "mse"]
    error = f"{errors[0]['value']:.3f} ({errors[0]['baseline']:.3f})" if errors else "-"
    failed = [row for row in rows if row["status"] == "failed"]
    if failed:
        yield (*names, "-", failed[0]["reason"], "-", "failed", "-", error)
    views: dict[str, list[Row]] = {}
    for row in rows:
        if row["metric"] == BOUND and row["status"] == "ran":
            views.setdefault(str(row["adversary"]).partition(",")[0], []).append(row)
    for place, (view, bounds) in enumerate(views.items()):
        read = _best_attack(rows) if view == "all rounds" else "-"
        numbers = "\n".join(f"{row['value']:.2f} ({_claim(row)}) [{row['ceiling']:.1f}]" for row in bounds)
        verdicts = "\n".join(str(row["verdict"]) for row in bounds)
        yield (*names, view, bounds[0]["reason"], numbers, verdicts, read, "" if place else error)
    fellow = [row for row in rows if str(row["adversary"]).startswith("client:")]
    if fellow:
        view = f"V of all rounds ({fellow[0]['adversary']})"
        yield (*names, view, "-", "-", "-", _read_by_a_fellow(fellow), "")


def _claim(row: Row) -> str:
    return f"{row['baseline']:.2f}" if math.isfinite(row["baseline"]) else "none"


def option_of(defense: str, name: str) -> str:
    """Look up an option in the text of a defense."""
    return defense.rpartition(f"{name}=")[2].partition(",")[0] if f"{name}=" in defense else "-"


def _read_by_a_fellow(rows: Sequence[Row]) -> str:
    """What one client reads of the others, who have no names there."""
    metrics = {str(row["metric"]): row for row in rows if row["status"] == "ran"}
    if CLAIMED not in metrics:
        return f"{NOT_TESTED}: {rows[0]['reason']}"
    claimed, clients = metrics[CLAIMED], metrics["share_of_clients_read"]
    n_clients = round(clients["value"] * clients["n_users"])
    return (
        f"{number(claimed['value'])} {interval_of(claimed)}\nof what it claims of {n_clients} nameless "
        f"clients\nguess {number(claimed['baseline'])}\n"
        f"{claimed['attack']}, {claimed['verdict']}"
    )


def best_answer(rows: Sequence[Row]) -> Row | None:
    """Find the attack with the largest advantage on rated items, or on how their ratings differ."""
    names = ("rated_rating_accuracy", *RELATIVE)
    answered = [row for row in rows if row["metric"] in names and tested(row)]
    return max(answered, key=lambda row: row["advantage"], default=None)


def _best_attack(rows: Sequence[Row]) -> str:
    best = best_answer(rows)
    if best is None:
        return NOT_TESTED
    words = (
        f"{number(best['value'])} {interval_of(best)}\nguess {number(best['baseline'])}, "
        f"ceiling {number(best['ceiling'])}\n{best['attack']}{of_what(best)}, {best['verdict']}"
    )
    silent = int(best["n_abstained"])
    return f"{words}\nno answer for {silent} clients" if silent else words


def account_table(lines: Sequence[Row], title: str) -> Sheet:
    """Tabulate a defense's privacy account."""

    def epsilon(value: float) -> str:
        if math.isnan(value):
            return "nothing proved"
        return f"{value:,.4g}" if math.isfinite(value) else "none"

    return Sheet(
        title,
        ("what", "eps, delta = 0", "eps at delta", "delta", "why"),
        [
            (
                line["what"], epsilon(line["epsilon"]), epsilon(line["at_delta"]), f"{line['delta']:g}",
                line["why"],
            )
            for line in lines
        ],
    )  # fmt: skip


# Data and recordings


def losses_table(losses: Sequence[tuple[str, str, int, int, str]], name: str) -> Sheet:
    """Tabulate what a loader left out or does not know: where, what, how many, of how many, why."""
    rows = [(where, what, f"{count:,}", f"{of:,}", why) for where, what, count, of, why in losses]
    columns = ("file", "what", "lost", "of", "why")
    return Sheet(f"What {name} loses on the way", columns, rows, right=("lost", "of"))


def facts_table(facts: Mapping[str, str], name: str) -> Sheet:
    """Tabulate what a recording holds."""
    return Sheet(f"What {name} holds", ("what", "how much"), list(facts.items()))


def rule_table(rule: Sequence[Mapping[str, Any]]) -> Sheet:
    """Tabulate the client update rule as attacks take it."""
    rows = [(key["name"], key["value"], key["source"]) for key in rule]
    return Sheet("What the clients' rule is taken to be", ("key", "value", "why"), rows)


def families_table(families: Sequence[tuple[str, int, int, float | None]]) -> Sheet:
    """Tabulate which families of client programs explain what was uploaded, the most clients first."""
    rows = [
        (name, f"{clients:,} of {looked_at:,}", "" if nats is None else f"{nats:,.0f}")
        for name, clients, looked_at, nats in sorted(families, key=lambda one: -one[1] / max(one[2], 1))
    ]
    caption = "nats: evidence against chance, in the middle of explained clients (noise: of all together)"
    return Sheet("What explains the uploads", ("family", "clients", "nats"), rows, caption=caption)


def attacks_table(attacks: Sequence[Mapping[str, Any]], adversary: str) -> Sheet:
    """Tabulate which attacks apply."""
    groups = folded(attacks, lambda one: one["attack"], lambda one: one["reason"] or None)
    return Sheet(
        f"Attacks on what the {adversary} sees",
        ("attack", "applies", "why not"),
        [(name, "yes" if one["applies"] else "no", one["reason"]) for name, (one, *_) in groups],
        caption="applies: it will look, which is no promise that it finds",
    )


# Recommenders and their cost


def learning_table(
    rounds: Sequence[int], rmse: Sequence[float], centralised: float, bias: float, mean: float, title: str
) -> Sheet:
    """Tabulate the error after each number of rounds, beside models that are trained in one place."""
    errors = {f"as trained, {count} rounds": error for count, error in zip(rounds, rmse, strict=True)}
    errors |= {
        "centralised alternating least squares, best of 15 sweeps": centralised,
        "centralised mean + user bias + item bias": bias,
        "training mean": mean,
    }
    rows = [(model, number(error)) for model, error in errors.items()]
    return Sheet(title, ("model", "RMSE"), rows, right=("RMSE",))


def tuning_table(trials: Sequence[Any], measure: str, title: str, most: int = 10) -> Sheet:
    """Tabulate the best trials of a search, and how many failed."""
    failed = sum(math.isnan(trial.value) for trial in trials)
    columns = ("trial", measure, *trials[0].options)
    rows = [
        (str(trial.number), number(trial.value, 4), *(f"{value:.4g}" for value in trial.options.values()))
        for trial in trials[: min(most, len(trials) - failed)]
    ]
    return Sheet(f"{title}, {failed} failed" if failed else title, columns, rows, right=columns)


def quality_table(rows: Sequence[Row], title: str) -> Sheet:
    """Tabulate scenarios, readings and metrics: with and without encryption, beside popularity."""
    lines = []
    for key, found in grouped(rows, "scenario", "reading", "metric").items():
        systems = {
            system: [row["value"] for row in some] for system, some in grouped(found, "system").items()
        }
        if len(systems) == 3:  # none of them failed
            plain, encrypted, popular = (systems[name] for name in ("plain", "encrypted", "popularity"))
            apart = max(abs(one - other) for one, other in zip(plain, encrypted, strict=True))
            means = (_mean_and_sd(values, 4) for values in (plain, encrypted))
            lines.append((*key, *means, f"{apart:.1e}", _mean_and_sd(popular, 4)))
    numbers = ("without encryption", "with encryption", "largest difference of a run", "popularity")
    return Sheet(title, ("scenario", "among", "metric", *numbers), lines, right=numbers)


PHASES = {  # heading -> column; the first three of the busiest client and of the mean one
    "local\nupdate": "local_update",
    "encrypt": "encryption",
    "transfer": "transfer",
    "aggregate": "aggregation",
    "decrypt": "decryption",
    "server\nupdate": "server_update",
}


def cost_table(rows: Sequence[Row], title: str) -> Sheet:
    """Make one line per number of items and system; client phases of the busiest and of the mean client.

    References
    ----------
    Chai et al. 2021, arXiv:1906.05108, Table 1 and Figures 2 and 3.
    """
    lines = [
        (
            f"{row['items']:,}",
            f"{row['ratings']:,}",
            row["system"],
            *(_both(row, f"seconds_{name}") for name in list(PHASES.values())[:3]),
            *(_seconds(row[f"seconds_{name}"]) for name in list(PHASES.values())[3:]),
            f"{row['bytes_sent'] / 1e6:.3g} / {row['bytes_sent_mean'] / 1e6:.3g}",
            f"{row['ciphertexts']:,.0f}",
            f"{row['peak_bytes'] / 1e6:,.0f}",
            _seconds(row["slowest"]),
            f"{row['server_share']:.0%}",
            f"{row['server_share_subtracting']:.0%}",
            _counted(row),
            number(row["paper"], 2),
            "-" if row["paper"] is None else f"{row['paper'] / row['slowest']:.1f}",
        )
        for row in rows
    ]
    sizes = ("MB sent", "cipher-\ntexts", "peak MB")
    shares = ("round", "of it\nserver", "if it\nsubtracts", "by counts", "paper", "paper /\nround")
    names, numbers = ("items", "ratings", "system"), (*PHASES, *sizes, *shares)
    stacks = names, tuple(PHASES)[:3], tuple(PHASES)[3:], sizes, shares
    return Sheet(title, (*names, *numbers), lines, right=("items", "ratings", *numbers), stacks=stacks)


def _counted(row: Row) -> str:
    """The server's share by counts of operations, adding and subtracting."""
    adding, subtracting = row["server_share_counted"], row["server_share_counted_subtracting"]
    return "-" if math.isnan(adding) else f"{adding:.0%} / {subtracting:.0%}"


def _both(row: Row, name: str) -> str:
    """Seconds of the busiest client, and of the mean one."""
    return "-" if row[name] == 0 else f"{row[name]:.3g} / {row[f'{name}_mean']:.3g}"


def _seconds(value: float) -> str:
    return "-" if value == 0 else f"{value:.3g}"


def graph_cost_table(rows: Sequence[Row], title: str) -> Sheet:
    """Tabulate rounds in which clients send to each other; bytes of the busiest client and the mean one."""
    counted = ("users", "items", "ratings", "rows", "edges", "messages")
    lines = [
        (
            *(f"{int(row[name]):,}" for name in counted),
            f"{row['bytes'] / 1e6:.3g}",
            *(
                f"{row[f'bytes_{way}'] / 1e6:.3g} / {row[f'bytes_{way}_mean'] / 1e6:.3g}"
                for way in ("sent", "received")
            ),
            number(row["seconds_round"], 3),
            number(row["seconds_rows"], 3),
            f"{row['peak_bytes'] / 1e6:,.0f}",
        )
        for row in rows
    ]
    columns = (*counted, "MB", "MB sent", "MB received", "seconds", "of it\nrows", "peak MB")
    return Sheet(title, columns, lines, right=columns)


LISTS = {"rated_set_auc": "AUC of the rated set", "rated_set_f1": "F1 of the rated set"}


def list_privacy_table(rows: Sequence[Row], title: str) -> Sheet:
    """Tabulate one line per way of hiding the rated items and number of rounds watched."""
    lines = []
    for label, of_label in grouped(rows, "defense").items():
        costs = costs_of(of_label)
        sent = number(costs.get(SENT, math.nan) / 1e6, 2)
        encrypt = number(costs.get("seconds_encryption_mean"))
        spent = (label, sent, encrypt, number(costs.get("seconds_aggregation"), 2))
        for watched, scores in by_rounds(of_label):
            auc, f1 = (scores.get(metric) for metric in LISTS)
            read = [
                cell
                for row in (auc, f1)
                for cell in (
                    ("-", "-")
                    if row is None
                    else (f"{number(row['value'])} {interval_of(row)}", number(row["baseline"]))
                )
            ]
            verdict = "lists say nothing" if f1 is None else str(f1["verdict"])
            lines.append((*spent, str(watched), *read, verdict))
    stacks: tuple[tuple[str, ...], ...] = (
        ("MB sent,\nmean client", "encrypt, s", "server adds, s", "rounds\nwatched"),
        ("AUC [95 %]", "best\nguess"),
        ("F1 [95 %]", "best\nguess ", "F1 verdict"),
    )
    columns = ("hidden by", *(name for stack in stacks for name in stack))
    return Sheet(title, columns, lines, right=columns[1:-1], stacks=stacks)


def costs_of(rows: Sequence[Row]) -> dict[str, float]:
    """Look up the values of rows that ran by their metric."""
    return {row["metric"]: float(row["value"]) for row in rows if row["status"] == "ran"}


def by_rounds(rows: Sequence[Row]) -> Iterator[tuple[int, Mapping[str, Row]]]:
    """Yield what is read of the rated items after each number of rounds, by metric; none if not tested."""
    asked = [row for row in rows if row["attack"] and (row["metric"] in LISTS or row["status"] != "ran")]
    for watched, here in sorted(grouped(asked, "rounds").items()):
        yield int(watched), {row["metric"]: row for row in here if row["status"] == "ran"}
