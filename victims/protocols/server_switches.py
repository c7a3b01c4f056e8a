"""Switches of victims with one server: what is predicted with biases, and what recordings declare."""

from __future__ import annotations

from typing import Any

import numpy as np

from victims.data.ratings import Ratings
from victims.protocols.exchanged import Attacker, Sample
from victims.protocols.one_server import OneServer, Products
from victims.protocols.switches import Switches, rule_of
from victims.transcript.kinds import ITEM_BIAS, STANDARD, Kind
from victims.transcript.manifest import Manifest, Upload

READERS = (Attacker("undeclared", 2), Attacker("grid"), Attacker("spectral", 2), Attacker("rated-set", 2))


class ServerSwitches(Switches, OneServer):
    """The switches of a victim with one server; victims inherit them."""

    def predictor(self, state: Any, ratings: Ratings, sample: Sample | None = None) -> Products:
        """p . q, and the biases if there are any."""
        products = super().predictor(state, ratings, sample)
        if self.biases is None:
            return products
        clients, items = products.clients, products.items
        of_clients, of_items = np.ones((len(clients), 2)), np.ones((len(items), 2))
        of_clients[:, 0], of_items[:, 1] = state.biases.clients, state.biases.items
        return Products(
            np.concatenate([clients, of_clients], axis=1), np.concatenate([items, of_items], axis=1)
        )


def declared(
    switches: Switches,
    manifest: Manifest,
    *,
    rate: float | None,
    item_pull: float = 0.0,
    rule: str | None = None,
    more: dict[str, Any] | None = None,
) -> Manifest:
    """A manifest of version 1 as version 2, with the clients' rule of these switches."""
    upload, known = manifest.upload, True
    if switches.sends != "gradient":
        known = rate is not None
        scale = 1.0 if rate is None else 2 * rate
        pull = 0.0 if rate is None else -2 * rate * item_pull
        upload = Upload(scale=scale, regularization=pull)
    extra: dict[str, Any] = {} if switches.row_factor == "before" else {"row_factor": switches.row_factor}
    extra |= {"client_biases": True} if switches.biases == "both" else {}
    said = rule_of(
        switches,
        rule or manifest.update,
        "all" if manifest.upload.zeros_if_unrated else "rated",
        switches.sends != "gradient",
        **extra,
        **(more or {}),
    )
    update = manifest.update if rule is None else None
    of_biases = {} if switches.biases is None else {ITEM_BIAS: Kind(of="item", role="other", width=1)}
    changes = {
        "version": 2,
        "update": update,
        "upload": upload,
        "declared_rule": said,
        "scale_known": known,
        "kinds": {**STANDARD, **of_biases},
    }
    return manifest.model_copy(update=changes)
