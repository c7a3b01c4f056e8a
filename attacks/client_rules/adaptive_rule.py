"""Steps of Adam and its relatives over all ratings, by name; what they do is ``adaptive_steps``.

``attacks.inversion.adaptive.adaptive_recording`` fits them: the first step tells signs alone, so that fits
begin where rows' entries say, not from what a short step would tell.

References
----------
D. P. Kingma, J. Ba 2015, arXiv:1412.6980, Algorithm 1; I. Loshchilov, F. Hutter 2019, arXiv:1711.05101.
"""

from __future__ import annotations

from dataclasses import dataclass

from attacks.client_rules.adaptive_steps import ADAGRAD, ADAM, RMSPROP, Optimizer

USUAL_DECAY = 0.01  # of AdamW


@dataclass(frozen=True)
class AdaptiveSteps:
    """One of them."""

    name: str = "adam"  # ``adam``, ``adamw``, ``rmsprop`` or ``adagrad``
    optimizer: Optimizer = ADAM
    decay: float = 0.0  # weight decay beside the step, as programs have it by default


ADAPTIVE = (
    AdaptiveSteps(),
    AdaptiveSteps("adamw", ADAM, USUAL_DECAY),
    AdaptiveSteps("rmsprop", RMSPROP),
    AdaptiveSteps("adagrad", ADAGRAD),
)
