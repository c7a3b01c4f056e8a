"""Why a view tells an attack nothing: read off recordings of each kind."""

from __future__ import annotations

import factorleak as fl
from attacks.obstacles import alpha_unknown, factors_hidden, nothing_received, unreadable


def view_of(path, adversary="server", victim="fedmf", **how):
    fl.record(path, fl.synthetic(users=12), victim=victim, rounds=[0], **how)
    return fl.open_transcript(path).view(adversary)


def test_uploads_in_the_clear_have_no_obstacle(tmp_path):
    view = view_of(tmp_path / "t")
    assert (unreadable(view), factors_hidden(view), alpha_unknown(view)) == ("", "", "")


def test_encrypted_uploads_and_factors(tmp_path):
    view = view_of(tmp_path / "t", defenses=["paillier:ideal=true"])
    assert "encrypted and the adversary holds no key" in unreadable(view)
    assert "broadcast factors are encrypted" in factors_hidden(view)


def test_an_item_server_receives_no_uploads(tmp_path):
    view = view_of(tmp_path / "t", "item-server", victim="fedmvmf")
    assert unreadable(view) == nothing_received(view) == "the adversary receives no uploads"
