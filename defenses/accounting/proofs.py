"""Which settings a proof covers; of every other one nothing is proved.

What is listed are the options of a victim whose values a proof does not depend on; every other option must
have its default. So an option that somebody adds has no account until its author has looked at the proof and
added it here. Likewise for the defenses that may stand beside the one that states the account: what an
unknown one does with the ratings nobody knows.

``tests/contract/test_accounts.py`` holds the lists against the victims: with the rows that arrive
kept as they are, no value of a rating changes what is broadcast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from victims.protocols.account import Setting

SCENARIO = frozenset({"update", "weighting", "factors", "init_scale"})
STEPS = frozenset(
    {"order", "local_steps", "batch_size", "shuffle", "reduction", "upload", "row_factor"}
    | {"participation", "dropout"}
)
AMONG_TRUSTED = frozenset(
    {"degree", "learning_rate", "lambda_users", "lambda_items", "regularize", "positive_share", "fallback"}
    | {"rating_map", "start", "init_spread", "personal_start"}
)
DEFENSES = frozenset(
    {"laplace", "gaussian", "objective-noise", "stretching", "personalized-sampling", "unrated-sampling"}
    | {"paillier", "secure-sum"}
)


@dataclass(frozen=True)
class Proof:
    """The settings that a proof covers."""

    victims: Mapping[str, frozenset[str]]  # options of each victim whose values do not matter
    rounds: int | None = None  # rounds from round 0 on that it counts; None counts any number

    def gap(self, setting: Setting) -> str:
        """What of a setting is not covered, in words; empty where all of it is."""
        covered = self.victims.get(setting.victim)
        if covered is None:
            known = ", ".join(self.victims)
            return f"the proof is for {known}, and knows nothing of what {setting.victim} sends"
        others = sorted(set(setting.changed) - covered)
        if others:
            said = ", ".join(f"{name}={setting.options[name]}" for name in others)
            return f"the proof does not cover {said} of {setting.victim}"
        strangers = sorted(set(setting.defenses) - DEFENSES)
        if strangers:
            return f"the proof does not know what {', '.join(strangers)} does with the ratings"
        if not setting.on_received and setting.n_rounds > 1:
            return "receivers trained on the rows before the defenses, so that broadcasts show them"
        if self.rounds is not None and setting.n_rounds > self.rounds:
            return f"the proof is for {self.rounds} round from round 0 on, and {setting.n_rounds} ran"
        return ""


# everything that a client sends is a row, and receivers step with what the defenses made of it
ROWS = Proof(
    {
        "fedmvmf": SCENARIO
        | STEPS
        | {"lambda_attributes", "lambda_factors", "alpha", "server_learning_rate", "beta_1", "beta_2"}
        | {"epsilon", "client_learning_rate"},
        # not stop_gradient: when a training is over hangs on gradients that no defense has seen
        "fedmf": SCENARIO
        | STEPS
        | {"lambda_factors", "item_regularization", "client_learning_rate", "start", "stop_side"},
        "mf": SCENARIO | STEPS | {"learning_rate", "epochs", "regularization", "regularize"},
        "pdmfrec": SCENARIO
        | STEPS
        | {"learning_rate", "regularization", "variant", "threshold", "weight", "own_step", "start"}
        | {"start_law", "helper", "anonymous", "links"},
        "dpmf-yang": SCENARIO
        | STEPS
        | AMONG_TRUSTED
        | {"implicit_weight", "negative_weight", "lambda_implicit", "lambda_offsets", "negatives"}
        | {"receivers", "implicit_scale", "predict_with"},
        "dmf": SCENARIO | STEPS | AMONG_TRUSTED | {"walk_length", "walks", "personal_scale"},
    }
)

# a rating moves its own row alone, on the unit ball, and all raters add their share: nothing of STEPS
ONE_RATING = Proof({"mf": SCENARIO | {"learning_rate", "epochs", "regularization", "regularize"}}, rounds=1)


def one_row_at_first(setting: Setting) -> bool:
    """Whether one rating enters one row in round 0, for no rating has moved the start factor yet."""
    needed = {"update": "sgd", "order": "batch", "local_steps": 1, "batch_size": "all"}
    needed["row_factor"] = "before"
    return all(setting.options.get(name) == value for name, value in needed.items())
