"""Draw Duriakova et al. 2019, Yang et al. 2022 and defenses from rows: ``python docs/research/draw.py``.

Files go to ``reports/gallery``; the same rows give the same bytes.
"""

from __future__ import annotations

import re
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from reports.figures import comparison_figure, save
from reports.paper_figures import growth_figure, leakage_figure, rounds_figure, trusted_figures
from reports.paper_tables import PDMFREC

HERE = Path(__file__).parent
GALLERY = HERE.parents[1] / "reports" / "gallery"


CELL = re.compile(r"([\d.]+) \[([\d.]+), ([\d.]+)\].*`(.+)`")
GUESSES = {  # of the clients that were attacked: 120, and all where uploads are encrypted
    "rated items right [95 %] of ceiling": ("rated_rating_accuracy", 0.343, 0.347),
    "rated set, AUC": ("rated_set_auc", 0.852, 0.860),
    "attribute blocks": ("attribute_group_accuracy", 0.406, 0.381),
}


def defenses(folder: Path) -> list[Path]:
    """Leakage against quality of FedMVMF's defenses, of the table's rows."""
    table = pd.read_csv(HERE / "rows" / "compare-fedmvmf.csv").ffill()  # of one defense are two lines
    rows: list[dict[str, Any]] = []
    for _, line in table.iterrows():
        same = {"defense": line["defense"].strip("`"), "status": "ran", "reason": "", "verdict": "LEAK"}
        encrypted = same["defense"] in ("paillier", "privmvmf")
        for column, (metric, *guesses) in GUESSES.items():
            guess = guesses[encrypted]
            cell = CELL.match(line[column])
            value, low, high = map(float, cell.groups()[:3]) if cell else (guess,) * 3
            values: dict[str, Any] = {"value": value, "ci_low": low, "ci_high": high}
            above = zip(("advantage", "advantage_low", "advantage_high"), values.values(), strict=True)
            values |= {name: (one - guess) / (1 - guess) for name, one in above}
            values |= {
                "verdict": "LEAK" if cell else "NOT TESTED",
                "attack": cell[4] if cell else "aggregate",
            }
            row = {**same, **values, "metric": metric, "baseline": guess}
            # where nothing is encrypted a client's key opens nothing
            readers = [line["adversary"]] if encrypted else ["server", "server+client"]
            rows += [{**row, "adversary": adversary} for adversary in readers]
        if line["adversary"] == "server":
            mean, spread = (float(text.strip("()")) for text in line["NDCG@10 (sd)"].split())
            sent = float(line["s, MB of a client"].split(", ")[1]) * 1e6
            runs = [mean - spread / 2**0.5, mean + spread / 2**0.5]  # two of that mean and deviation
            measured = [("bytes_sent_mean", sent), *(("ndcg_at_10", value) for value in runs)]
            rows += [{**same, "adversary": None, "metric": name, "value": value} for name, value in measured]
    return comparison_figure(rows, folder)


def pdmfrec_rounds() -> Figure:
    """MAE against rounds, of the table's rows."""
    wide = pd.read_csv(HERE / "rows" / "paper-003-rounds.csv").rename(columns={"Unnamed: 0": "variant"})
    frame = wide.melt(["variant", "rate"], var_name="rounds", value_name="mae")
    frame["rounds"] = frame["rounds"].astype(int)
    other = pd.read_csv(HERE / "rows" / "paper-003-other.csv")
    mean = float(other["training mean"].iloc[0])
    return rounds_figure(frame, mean=mean, published=PDMFREC["pdmfrec"][0])


def trusted(folder: Path) -> list[Path]:
    """Figures 4 and 6 of Yang et al. 2022 for both data."""
    out = []
    frame = pd.read_csv(HERE / "figures" / "paper-004.csv")
    for data, some in frame.groupby("data"):
        rows = some.to_dict("records")
        for path in trusted_figures(rows, "nothing", folder):
            end = "" if data == "filmtrust" else f"_{data}"
            out.append(path.rename(folder / f"trusted_{path.stem}{end}{path.suffix}"))
    return out


def trusted_weights(folder: Path) -> list[Path]:
    """Figure 5 of Yang et al. 2022 for both data, of its tables' rows."""
    out = []
    for end in ("", "-epinions"):
        wide = pd.read_csv(HERE / "rows" / f"paper-004-weights{end}.csv")
        long = wide.melt("lambda", var_name="weight")
        victims = [
            f"dpmf-yang K=3 lambda={share:g} {weight.replace(' ', '')}"
            for share, weight in zip(long["lambda"], long["weight"], strict=True)
        ]
        rows = long[["value"]].assign(victim=victims, metric="rmse_unit", status="ran").to_dict("records")
        out += [
            path.rename(folder / f"trusted_{path.stem}{end.replace('-', '_')}{path.suffix}")
            for path in trusted_figures(rows, "weights", folder)
        ]
    return out


def growth() -> Figure:
    """Bytes and seconds of a round of Yang et al.'s protocols, of the table's rows."""
    frame = pd.read_csv(HERE / "rows" / "paper-004-growth.csv", thousands=",")
    frame = frame[frame["at"] != "growth"].rename(columns={"system": "protocol", "s a round": "seconds"})
    at, by_users = frame["at"].astype(float), frame["varied"] == "users"
    factors = at.where(frame["varied"] == "factors", 10)
    messages = frame["messages"].astype(float) / frame["messages / claimed"].astype(float)
    ratings = frame["ratings"].astype(float)
    return growth_figure(frame.assign(at=at.where(~by_users, ratings), claimed=8 * factors * messages))


def main() -> None:
    """Draw all of them."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        leakage = leakage_figure(pd.read_csv(HERE / "figures" / "neighbours-leakage.csv"))
        paths = [
            *save(pdmfrec_rounds(), folder / "pdmfrec_mae_against_rounds"),
            *save(leakage, folder / "leakage_among_neighbours"),
            *save(growth(), folder / "round_growth"),
            *defenses(folder),
            *trusted(folder),
            *trusted_weights(folder),
        ]
        for path in paths:
            if path.suffix == ".png":
                copyfile(path, GALLERY / path.name)


if __name__ == "__main__":
    main()
