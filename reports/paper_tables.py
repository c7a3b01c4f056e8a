"""Tables that reproduce those of papers, with the published numbers beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from reports.layout import Sheet
from reports.verdicts import Row, number


def _spread(values: pd.Series, digits: int = 3) -> str:
    """Mean (standard deviation)."""
    if values.empty:
        return "-"
    deviation = values.std()
    mean = f"{values.mean():.{digits}f}"
    return f"{mean} ({deviation:.{digits}f})" if np.isfinite(deviation) else mean


# Encrypted rounds: Chai et al. 2021, arXiv:1906.05108; Mai & Pang 2022, arXiv:2210.07775

# Table 1: most rated items -> seconds of one iteration, part-text and full-text; 1024 bit, K = 100
FEDMF = {
    40: (34.39, 90.94),
    50: (44.05, 113.34),
    60: (46.34, 141.52),
    80: (52.91, 182.27),
    160: (92.81, 374.85),
    320: (140.51, 725.72),
    640: (178.24, 1479.40),
    1280: (264.10, 2919.91),
    2560: (334.79, 5786.01),
}
# Table 5: seconds of local update with encryption, aggregation, decryption, server update
PRIVMVMF = {"plain": (0.0195, 3.2878, None, 0.1912), "unpacked": (3.0787, 239.2998, 97.5748, 0.3334)}
# the tables by the victim that they are about
PER_ITEMS = {"fedmf": FEDMF}
PER_PHASE = {"fedmvmf": PRIVMVMF}
LIKE_THE_PAPER = ("phe, 1024 bit", "packed, 1024 bit")  # systems with the papers' length of keys


def published_seconds(victim: str, row: Row, upload: str) -> float | None:
    """Look up what the victim's paper reports for a row."""
    found = PER_ITEMS.get(victim, {}).get(row["items"])
    if found is None or row["system"] not in LIKE_THE_PAPER:
        return None
    return found[0 if upload == "part-text" else 1]


def of_the_upload(victim: str, upload: str) -> str:
    """Say how clients upload, for a title."""
    return f" ({upload})" if victim in PER_ITEMS else ""


def published_lines(victim: str) -> list[str]:
    """Say what the victim's paper reports of a whole round."""
    lines = []
    for name, phases in PER_PHASE.get(victim, {}).items():
        local, adding, opening, update = (number(value, 4) for value in phases)
        lines.append(
            f"Mai & Pang 2022, Table 5, {name}, 1024 bit, ML-1M: local update with encryption {local} s, "
            f"aggregation {adding} s, decryption {opening} s, server update {update} s"
        )
    return lines


# Private matrix factorisation: Hu & Fang 2023

# Table 3: (data, method) -> MSE and MAE at K = 10, at K = 5
PRIVATE_MF = {
    ("ml-100k", "mf"): ((0.9269, 0.7617), (0.9231, 0.7609)),
    ("ml-100k", "hdpmf"): ((1.4690, 0.9356), (1.2257, 0.8606)),
    ("ml-100k", "pdpmf"): ((1.5623, 0.9664), (1.2475, 0.8715)),
    ("ml-100k", "dpmf"): ((4.9264, 1.8811), (4.4484, 1.7685)),
    ("ml-1m", "mf"): ((0.7906, 0.7027), (0.8067, 0.7104)),
    ("ml-1m", "hdpmf"): ((1.0262, 0.7869), (0.9174, 0.7501)),
    ("ml-1m", "pdpmf"): ((1.0801, 0.8136), (0.9399, 0.7635)),
    ("ml-1m", "dpmf"): ((1.8032, 1.0350), (1.3912, 0.9166)),
}
STANDS_FOR = {"dpmf-program": "dpmf"}  # what a method stands for there
VARIED = {
    "user_low": "least weight of conservative users",
    "user_conservative": "share of conservative users",
    "fraction": "share of the training ratings",
    "epsilon": "largest budget",
}


def prediction_table(
    rows: Sequence[Row],
    data: str,
    title: str,
    vary: str = "nothing",
    over_users: Mapping[tuple[str, str], tuple[float, float]] | None = None,
) -> Sheet:
    """Mean (standard deviation) over seeds of both errors; Table 3's are beside them where nothing varies."""
    plain = vary == "nothing"
    paper, users = ["paper"] if plain else [], " [95 % over users]" if over_users else ""
    place = [] if plain else [VARIED[vary]]
    errors = (f"MSE (sd){users}", *paper, f"MAE (sd){users}", *paper)
    columns = ("K", *place, "method", *errors, "seeds", "s a seed")
    lines: list[list[str]] = []
    for (factors, x), found in prediction_frame(rows, vary).groupby(["K", "place"], sort=False):
        head = [str(factors)] if plain else [str(factors), f"{x:g}"]
        for method, of_method in found.groupby("method", sort=False):
            published = PRIVATE_MF.get((data, STANDS_FOR.get(str(method), str(method))))
            known = published[0 if factors == 10 else 1] if published and factors in (10, 5) else (None, None)
            intervals = [(over_users or {}).get((f"{method} K={factors}", name)) for name in ("mse", "mae")]
            cells = _errors(of_method, [number(value) for value in known] if plain else None, intervals)
            lines.append([*head, str(method), *cells])
        ran = found[found["status"] == "ran"].drop_duplicates(["seed", "metric"])
        mse, mae = (_spread(ran.loc[ran["metric"] == name, "baseline"]) for name in ("mse", "mae"))
        beside = ["-"] if plain else []
        lines.append([*head, "training mean", mse, *beside, mae, *beside, "", ""])
    return Sheet(title, columns, lines, right=tuple(name for name in columns if name != "method"))


def _errors(
    found: pd.DataFrame, paper: Sequence[str] | None, intervals: Sequence[tuple[float, float] | None]
) -> list[str]:
    """One line of the table, after its method."""
    ran = found[found["status"] == "ran"]
    if ran.empty:
        return [found["reason"].iloc[0], *[""] * (1 if paper is None else 3), "0", ""]
    cells = []
    for number_, (name, over_users) in enumerate(zip(("mse", "mae"), intervals, strict=True)):
        beside = "" if over_users is None else f" [{over_users[0]:.3f}, {over_users[1]:.3f}]"
        cells.append(_spread(ran.loc[ran["metric"] == name, "value"]) + beside)
        cells += [] if paper is None else [paper[number_]]
    return [*cells, str(ran["seed"].nunique()), f"{ran['seconds'].mean():.1f}"]


def prediction_frame(rows: Sequence[Row], vary: str) -> pd.DataFrame:
    """Put rows into a frame with columns ``method``, ``K`` and ``place``, the value of what is varied."""
    frame = pd.DataFrame(rows)
    words = frame["victim"].str.split(" K=", expand=True)
    frame = frame.assign(method=words[0], K=words[1].astype(int), place=0.0)
    if vary == "nothing":
        return frame
    text = frame["data" if vary == "fraction" else "defense"]
    frame["place"] = text.str.extract(rf"{vary}=([-+.e\d]+)")[0].astype(float)
    # a method without budgets is the same at every place
    same = frame[frame["place"].isna()].drop_duplicates(["method", "K", "seed", "metric"])
    placed = frame.dropna(subset="place")
    places = placed["place"].unique()
    return pd.concat([placed, *(same.assign(place=x) for x in places)]).sort_values(
        ["K", "place"], ascending=[False, True], kind="stable"
    )


def paired_table(found: Sequence[Any]) -> Sheet:
    """Tabulate paired tests of two methods over the same seeds, the stars as in Table 3."""
    fewest = min((one.n_seeds for one in found), default=0)
    lines = []
    for one in found:
        by = f"{number(one.result.better_by, 4)} {one.result.stars:<3}"
        ends = None if one.over_users is None else [number(end, 4) for end in one.over_users]
        over_users = "-" if ends is None else f"[{', '.join(ends)}]"
        tests = number(one.result.t_test, 4), number(one.result.sign_flip, 4)
        lines.append((one.factors, one.metric, one.better, one.worse, by, *tests, over_users))
    numbers = ("by", "t-test p", "sign-flip p", "by, 95 % over users")
    title = f"Paired over seeds, one-sided; sign flips of {fewest} seeds: p >= {2.0**-fewest:.2g}"
    return Sheet(title, ("factors", "error", "smaller", "than", *numbers), lines, right=numbers)


# PDMFRec: Duriakova et al. 2019

PDMFREC = {  # Table 2, ML-100K: MAE and RMSE
    "pdmfrec": (1.0194, 1.2722),
    "pdmfrec-sim": (0.7832, 0.9975),
    "pdmfrec-sim-all": (0.7332, 0.9360),
    "pmf": (0.7286, 0.9314),
}


def parts_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Put rows that ran into a frame with columns ``method`` and ``rate``."""
    frame = pd.DataFrame(rows)
    frame = frame[frame["status"] == "ran"].copy()
    words = frame["victim"].str.split(" ")
    frame["method"] = words.str[0]
    frame["rate"] = words.str[1].str.removeprefix("rate=").astype(float)
    return frame


def chosen(frame: pd.DataFrame, rounds: int | None = None) -> pd.DataFrame:
    """Choose the rate and the rounds of least validation MAE, for each method and rotation."""
    if rounds is not None:
        frame = frame[frame["rounds"] == rounds]
    keys = ["method", "seed", "rate", "rounds"]
    wide = frame.pivot_table(index=keys, columns="metric", values=["value", "baseline"], sort=False)
    flat = pd.DataFrame(
        {
            "mae": wide["value", "mae"],
            "rmse": wide["value", "rmse"],
            "mean_mae": wide["baseline", "mae"],
            "mean_rmse": wide["baseline", "rmse"],
            "validation_mae": wide["value", "validation_mae"],
        }
    ).reset_index()
    best = flat.groupby(["method", "seed"], sort=False)["validation_mae"].idxmin()
    return flat.loc[best]


def parts_table(rows: Sequence[Row], data: str, title: str, rounds: int | None = None) -> Sheet:
    """Mean (standard deviation) over rotations, the paper's numbers beside."""
    found = chosen(parts_frame(rows), rounds)
    lines = []
    for method, errors in found.groupby("method", sort=False):
        mae, rmse = PDMFREC.get(str(method), (None, None)) if data == "ml-100k" else (None, None)
        means = _spread(errors["mae"], 4), number(mae, 4), _spread(errors["rmse"], 4), number(rmse, 4)
        which = (
            ", ".join(f"{value:g}" for value in sorted(errors[name].unique())) for name in ("rate", "rounds")
        )
        lines.append((str(method), *means, *which, str(len(errors))))
    mean = found.drop_duplicates("seed")
    of_mean = (_spread(mean[name], 4) for name in ("mean_mae", "mean_rmse"))
    lines.append(("training mean", next(of_mean), "-", next(of_mean), "-", "", "", ""))
    numbers = ("MAE (sd)", "paper", "RMSE (sd)", "paper", "rates", "rounds", "rotations")
    return Sheet(title, ("method", *numbers), lines, right=numbers)


def rounds_table(rows: Sequence[Row], title: str) -> Sheet:
    """MAE after each number of rounds, at the rate of least validation MAE there; mean over rotations."""
    frame = parts_frame(rows)
    rounds = sorted({int(n_rounds) for n_rounds in frame["rounds"]})
    means = [chosen(frame, n_rounds).groupby("method", sort=False)["mae"].mean() for n_rounds in rounds]
    lines = [
        (str(method), *(number(float(mean.get(method, np.nan)), 4) for mean in means))
        for method in dict.fromkeys(frame["method"])
    ]
    columns = tuple(map(str, rounds))
    return Sheet(title, ("method", *columns), lines, right=columns)


# Users who trust each other: Yang et al. 2022

# Table 4: (data, system) -> P@5 and R@5 at K = 3, 6, 12
TRUSTED = {
    ("filmtrust", "implicit-pmf"): ((0.0332, 0.0711), (0.0380, 0.0771), (0.0410, 0.0831)),
    ("filmtrust", "wrmf"): ((0.0352, 0.0751), (0.0379, 0.0763), (0.0404, 0.0823)),
    ("filmtrust", "dpmf-yang"): ((0.0342, 0.0722), (0.0396, 0.0796), (0.0435, 0.0889)),
    ("epinions", "implicit-pmf"): ((0.0715, 0.1529), (0.0761, 0.1571), (0.0781, 0.1611)),
    ("epinions", "wrmf"): ((0.0717, 0.1497), (0.0760, 0.1563), (0.0789, 0.1603)),
    ("epinions", "dpmf-yang"): ((0.0716, 0.1524), (0.0781, 0.1599), (0.0821, 0.1653)),
}
SIZES = (3, 6, 12)
RANKED = ("precision_at_5_implicit", "recall_at_5_implicit", "precision_at_5_all", "recall_at_5_all")
TRAFFIC = ("rows_per_round", "messages_per_round", "bytes_per_round")
LEVEL = 0.95


def trusted_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Put rows into a frame with columns ``system``, ``K`` and ``place``, in words, of what is varied."""
    frame = pd.DataFrame(rows)
    words = frame["victim"].str.extract(r"^(\S+) K=(\d+) ?(.*)$")
    return frame.assign(system=words[0], K=words[1].astype(int), place=words[2])


def last_rounds(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows after each system's last measured round."""
    last = frame.groupby(["system", "K", "place"])["rounds"].transform("max")
    return frame[frame["rounds"].isna() | (frame["rounds"] == last)]


def mean_and_interval(values: pd.Series, digits: int = 4) -> str:
    """Write the mean over seeds, and half the width of its 95 % interval by Student's t.

    Examples
    --------
    >>> mean_and_interval(pd.Series([0.1, 0.2, 0.3]))
    '0.2000 ± 0.2484'
    """
    if values.empty:
        return "-"
    if values.size < 2:
        return f"{values.mean():.{digits}f}"
    half = stats.t.ppf((1 + LEVEL) / 2, values.size - 1) * values.std() / np.sqrt(values.size)
    return f"{values.mean():.{digits}f} ± {half:.{digits}f}"


def recommendation_table(rows: Sequence[Row], data: str, title: str) -> Sheet:
    """P@5 and R@5 after the last round in both universes, popularity and the paper's numbers beside."""
    frame = last_rounds(trusted_frame(rows))
    lines = []
    for factors, of_size in frame.groupby("K", sort=False):
        ranked = of_size[of_size["metric"].isin(RANKED)]
        for system, found in ranked.groupby("system", sort=False):
            known = dict(zip(SIZES, TRUSTED.get((data, str(system)), ()), strict=False))
            published = (number(value, 4) for value in known.get(int(str(factors)), (None, None)))
            lines.append((str(factors), str(system), *_ranking(found, "value"), *published))
        best = ranked[ranked["status"] == "ran"].drop_duplicates(["seed", "metric"])
        lines.append((str(factors), "popularity", *_ranking(best, "baseline"), "-", "-"))
    stacks = ("P@5 implicit", "R@5 implicit"), ("P@5 all", "R@5 all"), ("paper P@5", "R@5")
    numbers = tuple(name for stack in stacks for name in stack)
    return Sheet(title, ("K", "system", *numbers), lines, right=("K", *numbers), stacks=stacks)


def _ranking(found: pd.DataFrame, column: str) -> list[str]:
    ran = found[found["status"] == "ran"]
    if ran.empty:
        return [found["reason"].iloc[0] if len(found) else "-", "", "", ""]
    return [mean_and_interval(ran.loc[ran["metric"] == name, column]) for name in RANKED]


def error_table(rows: Sequence[Row], title: str) -> Sheet:
    """RMSE in units of 0..1 after the last round, with U^ and with U, and the constant mean."""
    frame = last_rounds(trusted_frame(rows))
    lines = []
    for head, found in frame[frame["metric"].str.startswith("rmse")].groupby(
        ["K", "place", "system"], sort=False
    ):
        ran = found[found["status"] == "ran"]
        if ran.empty:
            lines.append((*map(str, head), found["reason"].iloc[0], "", "", "0"))
            continue
        main, other = (ran[ran["metric"] == name] for name in ("rmse_unit", "rmse_unit_users"))
        means = map(mean_and_interval, (main["value"], other["value"], main["baseline"]))
        lines.append((*map(str, head), *means, str(main["seed"].nunique())))
    columns = ("K", "varied", "system", "RMSE", "RMSE with U alone", "constant mean", "seeds")
    return Sheet(title, columns, lines, right=tuple(name for name in columns if name != "system"))


def traffic_table(rows: Sequence[Row], title: str) -> Sheet:
    """What is sent in a round, counted, and seconds of a training."""
    frame = last_rounds(trusted_frame(rows))
    frame = frame[frame["metric"].isin(TRAFFIC) & (frame["status"] == "ran")]
    lines = []
    for head, found in frame.groupby(["K", "place", "system"], sort=False):
        sent, arrived, size = (found.loc[found["metric"] == name, "value"].mean() for name in TRAFFIC)
        counts = [f"{count:,.0f}" for count in (found["n_users"].mean(), sent, arrived, size)]
        lines.append((*map(str, head), *counts, f"{arrived / sent:.3f}", f"{found['seconds'].mean():.1f}"))
    columns = ("K", "varied", "system", "users", "rows", "messages", "bytes", "messages / row", "s a run")
    return Sheet(title, columns, lines, right=tuple(name for name in columns if name != "system"))


def over_weights(frame: pd.DataFrame) -> pd.DataFrame:
    """Spread rows of ``--vary weights`` over lambda and W, means over seeds."""
    words = frame["place"].str.extract(r"lambda=(\S+) W=(\S+)").astype(float)
    return frame.assign(share=words[0], weight=words[1]).pivot_table("value", "share", "weight")
