"""The trajectory attack: a client's start and ratings are fitted to several rounds of its uploads.

Beyond Hu & Fang 2023, against protocols whose clients keep their factor from round to round. The unknown
start p^0 and the (stretched) ratings s = W o R determine every later factor by the client's own step, so that
T rounds of n K numbers overdetermine K + n unknowns. ``attacks.trajectory.trajectory_fits`` solves that by
least squares:

- noise drawn once (``objective-noise`` with noise=once) cancels in differences; the start is the closed form
  of ``attacks.trajectory.differencing``, else random, and the answer is exact;
- fresh normal noise of known scale (``objective-noise``, ``gaussian``): maximum a posteriori, with a Gaussian
  prior of s fitted to the clients themselves (``attacks.trajectory.passes``);
- no noise: as fresh, with equal weights.

Where ratings are stretched, ``attacks.trajectory.stretched_ratings`` then separates W o R into rank-one
weights and ratings on the grid, all clients together; ``attacks.trajectory.answers`` writes the answers.

What it assumes: uploads in the clear in consecutive rounds, and the constants of the step; noise once needs
them only where a client has fewer than four ratings. It abstains where no start explains the rows, where the
noise leaves next to nothing about a rating, and where the clients' rule is seen not to be the declared one
(``attacks.trajectory.answers``). ``answer="stretched"`` is not judged by the grid where weights lie
between.

References
----------
W. Hu, H. Fang, "Decentralized Matrix Factorization with Heterogeneous Differential Privacy",
arXiv:2212.00306, Algorithm 1. Levenberg-Marquardt: D. W. Marquardt 1963, doi:10.1137/0111030.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

import numpy as np

from attacks.base import Progress, Reconstruction, all_abstain, silent
from attacks.closed_form.common_numbers import abstain_if_lowered
from attacks.closed_form.fit.arbiter import abstain_if_contradicted
from attacks.closed_form.uploads.common_items import ROUNDS, with_common_items
from attacks.closed_form.uploads.repeated_noise import noise_repeats
from attacks.obstacles import unreadable
from attacks.trajectory.answers import reconstruct
from attacks.trajectory.passes import fit_clients
from attacks.trajectory.told_together import Told, read_together
from attacks.trajectory.trajectory_model import TrajectoryModel, model_of
from victims.common.validation import above, at_least, one_of, require_fields
from victims.transcript.view import View


@dataclass(frozen=True)
class Trajectory:
    """Hyper-parameters.

    Attributes
    ----------
    answer : "ratings" or "stretched"
        Ratings on the grid with their probabilities, or W o R as fitted.
    rounds : int
        Longest run of consecutive rounds that is used where noise repeats, >= 2; otherwise all are.
    starts : int
        Starts per client, >= 1; with fresh noise one, whose horizon grows.
    steps : int
        Steps of one start, >= 1.
    max_misfit : float
        As in ``attacks.closed_form.spectral``, > 0, where there is no fresh noise.
    """

    answer: Literal["ratings", "stretched"] = "ratings"
    rounds: int = 12
    starts: int = 5
    steps: int = 100
    max_misfit: float = 0.5
    name: str = "trajectory"

    def __post_init__(self) -> None:
        require_fields(
            self,
            "trajectory",
            answer=one_of("ratings", "stretched"),
            rounds=at_least(2),
            starts=at_least(1),
            steps=at_least(1),
            max_misfit=above(0),
        )

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Fit the trajectories of all clients of a view, and read their ratings."""
        options = {**asdict(self), "seed": key}
        view, model = self._model(view)
        if isinstance(model, str):
            return all_abstain(self.name, view.users, model, options)

        def fitted(other: TrajectoryModel) -> Told:
            fits = fit_clients(view, other, key, progress)
            order = np.argsort(np.concatenate([fit.users for fit in fits]))
            found = reconstruct(
                self.name, other, fits, options, answer=self.answer, max_misfit=self.max_misfit
            )
            by_grid, off_grid = (
                np.concatenate([getattr(fit, name) for fit in fits])[order]
                for name in ("by_grid", "off_grid")
            )
            learned = tuple(fit.learned for fit in fits if fit.learned is not None)
            return Told(found, by_grid, off_grid, learned)

        if self.answer == "stretched":  # what clients learn is asked for, whatever ratings it comes of
            return fitted(model).found
        if model.fresh or model.stretched:
            return abstain_if_lowered(fitted(model).found, view)
        found, lowered = read_together(model, fitted)
        return abstain_if_contradicted(found if lowered else abstain_if_lowered(found, view), self.max_misfit)

    def obstacle(self, view: View) -> str:
        """Why no trajectory can be fitted, or nothing."""
        _, model = self._model(view)
        return model if isinstance(model, str) else ""

    def _model(self, view: View) -> tuple[View, TrajectoryModel | str]:
        """What is known of the clients' uploads, and those that are read."""
        known = partial(model_of, n_starts=self.starts, max_steps=self.steps)
        common = view if unreadable(view) else with_common_items(view)
        if common is not view and noise_repeats(common):
            model = known(common, max_rounds=ROUNDS)
            if not isinstance(model, str):  # steps are over all items that were sent
                return common, model._replace(known_step=False)
        return view, known(view, max_rounds=self.rounds)
