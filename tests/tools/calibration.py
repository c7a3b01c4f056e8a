"""How often the noise term of ``undeclared`` is right, beside what it claims, over programs of minibatches.

python -m tests.tools.calibration [--quick] [--only TEXT] [--figure FILE]

One row for each program, read from its last round alone, nothing declared. ``oracle`` is told two numbers a
client; ``answered`` is the share of clients; the rest is of their ratings.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attacks.linear_forms.forms import padded, some_of
from attacks.linear_forms.reading import LEARNERS, in_batches, learn, read, room_for
from tests.oracles.minibatches import Minibatches, forms, oracle, stacked

SURE = 0.95
READ = {
    "minibatches of 4, two epochs": Minibatches(),
    "minibatches of 1": Minibatches(batch=1),
    "minibatches of 16": Minibatches(batch=16),
    "minibatches of 32, five epochs": Minibatches(batch=32, epochs=5),
    "five epochs": Minibatches(epochs=5),
    "one epoch": Minibatches(epochs=1),
    "means": Minibatches(mean=True),
    "means of 16, five epochs": Minibatches(mean=True, batch=16, epochs=5),
    "rate 0.1": Minibatches(rate=0.1),
    "rate 0.1, five epochs": Minibatches(rate=0.1, epochs=5),
    "rate 0.005": Minibatches(rate=0.005),
    "four factors": Minibatches(factors=4),
    "64 factors": Minibatches(factors=64),
    "half stars": Minibatches(half_stars=True),
    "5 to 12 ratings": Minibatches(most=12),
    "100 to 119 ratings": Minibatches(fewest=100, most=119),
    "factors of 0.3": Minibatches(start=0.3),
    "eighth round": Minibatches(rounds=8),
    "thirtieth round, rate 0.02": Minibatches(rounds=30, rate=0.02),
    "gradients": Minibatches(upload="gradient"),
    "half precision": Minibatches(digits=np.float16),
    "Laplace noise of 2 % of the largest entry": Minibatches(noise=0.02),
    "ratings less 3.53": Minibatches(centred=3.53),
    "ratings less the client's mean": Minibatches(centred_by_client=True),
    "a client's bias of 0.5": Minibatches(user_bias=0.5),
}
NOT_READ = {
    "Adam": Minibatches(adam=True, rate=0.01),
    "numbers between levels, clipped to their ends": Minibatches(numbers="clipped"),
}
QUICK = ("minibatches of 4, two epochs", "means", "gradients", "5 to 12 ratings", "Adam")


class Answers(NamedTuple):
    """Of one program."""

    oracle: float
    follows: np.ndarray  # clients
    right: np.ndarray  # ratings of clients who are answered; the same
    claimed: np.ndarray


def answers(program: Minibatches, seed: int = 0) -> Answers:
    """Learn from some clients, as the attack does, and read all of them."""
    lists, ratings, rounds = program.trained()
    n_rows = np.array([items.size for items in lists])
    able = np.flatnonzero(n_rows >= np.median(n_rows))
    sent, levels = rounds[-1], program.levels
    offset = bool(program.centred or program.user_bias or program.centred_by_client)
    told = float(np.concatenate(oracle(lists, ratings, sent, levels, offset=offset)).mean())
    all_ = forms(lists, sent, int(n_rows.max()))
    learners = np.random.default_rng(seed).permutation(able)[:LEARNERS]
    together = learn(padded(some_of(all_, learners), room_for(n_rows.max())), levels, seed)
    follows, right, claimed = np.zeros(len(lists), bool), [np.zeros(0, bool)], [np.zeros(0)]
    for batch in in_batches(n_rows) if together is not None else []:
        room = room_for(n_rows[batch].max())
        some = forms([lists[user] for user in batch], sent._replace(rows=[sent.rows[u] for u in batch]), room)
        found = read(some, together, seed)
        follows[batch] = found.follows >= 0.5
        here = some.there & follows[batch][:, None]
        best = levels[found.probability.argmax(axis=-1)]
        right.append((best == stacked([ratings[user] for user in batch], room))[here])
        claimed.append(found.probability.max(axis=-1)[here])
    return Answers(told, follows, np.concatenate(right), np.concatenate(claimed))


def line(name: str, found: Answers, seconds: float) -> str:
    """One row of the table."""
    sure = found.claimed >= SURE
    cells = [f"{found.oracle:.3f}", f"{found.follows.mean():.2f}"]
    if found.right.size:
        wrong = f"{1 - found.right[sure].mean():.3f}" if sure.any() else "-"
        cells += [f"{found.right.mean():.3f}", f"{found.claimed.mean():.3f}", f"{sure.mean():.2f}", wrong]
    else:
        cells += ["-"] * 4
    return "| " + " | ".join([name, *cells, f"{seconds:.0f}"]) + " |"


def draw(found: list[Answers], file: Path) -> None:
    """Draw what is right against what is claimed, in ten bins, with 95 % intervals."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    right = np.concatenate([one.right for one in found]).astype(float)
    claimed = np.concatenate([one.claimed for one in found])
    place = np.minimum((claimed * 10).astype(int), 9)
    middle = np.array([claimed[place == one].mean() if (place == one).any() else np.nan for one in range(10)])
    sns.set_theme(context="paper", style="ticks", palette="colorblind")
    figure, axes = plt.subplots(figsize=(3.4, 3.2), layout="constrained")
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--")
    sns.lineplot(x=middle[place], y=right, marker="o", err_style="bars", seed=0, n_boot=200, ax=axes)
    axes.set(xlabel="claimed probability", ylabel="share that is right", xlim=(0, 1), ylim=(0, 1))
    sns.despine(fig=figure)
    figure.savefig(file)


def main() -> None:
    """Print the table, and draw all ratings of programs that are to be read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"only {len(QUICK)} programs")
    parser.add_argument("--only", default="", metavar="TEXT", help="programs whose name holds it")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw claimed against right")
    asked = parser.parse_args()
    print("| clients | oracle | answered | right | claimed | claims ≥ 0.95 | wrong among them | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    drawn = []
    for name, program in (READ | NOT_READ).items():
        if (asked.quick and name not in QUICK) or asked.only not in name:
            continue
        start = time.perf_counter()
        found = answers(program)
        print(line(name, found, time.perf_counter() - start), flush=True)
        if name in READ:
            drawn.append(found)
    if asked.figure is not None:
        draw(drawn, asked.figure)


if __name__ == "__main__":
    main()
