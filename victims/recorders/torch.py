"""Record a PyTorch program: the parameters of its module, before and after the training of each client.

    with factorleak.Recorder("run", rating_levels=[1, 2, 3, 4, 5], name="our recommender 2.3") as recorder:
        recorded = factorleak.RecordedModule(recorder, items="items.weight", private=["user"])
        for round_ in range(rounds):
            recorded.broadcast(round_, model)
            for client in clients:
                recorded.upload(round_, client, trained(model, client))

Nothing of PyTorch is imported here: a module and its parameters are used by their public names.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from typing import Any

import numpy as np

from victims.common.declarations import nearest
from victims.common.errors import InputError
from victims.transcript.kinds import RECORDED
from victims.transcript.recorder import Recorder

WHATS = ("weights", "changes", "gradients")


class RecordedModule:
    """Records the parameters of a ``torch.nn.Module`` that a server sends, and what clients answer.

    The table of items is what attacks read; each other parameter is a kind of its own name, held as it is.
    Buffers are not recorded.

    Parameters
    ----------
    recorder : Recorder
        Inside its context.
    items : str
        Name of the parameter that has a row for each item, as ``named_parameters`` has it.
    private : collection of str
        Beginnings of the names of parameters that stay with the clients.
    sends : {"weights", "changes", "gradients"}
        What clients answer: the parameters after training, what training changed, or the parameters'
        gradients.

    Raises
    ------
    InputError
        By the methods, if the module has no such parameter or the recorder refuses it.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        items: str,
        private: Collection[str] = (),
        sends: str = "weights",
    ) -> None:
        if sends not in WHATS:
            raise InputError(f"sends must be one of {', '.join(WHATS)}, got {sends!r:.80}")
        self._recorder = recorder
        self._items = items
        self._private = tuple([private] if isinstance(private, str) else private)
        self._sends = sends
        self._sent: dict[str, np.ndarray] = {}

    def broadcast(self, round_: int, module: Any, *, to: Hashable | None = None) -> None:
        """Record what a server sends before the training of a round, to one client or everybody."""
        tables = dict(self._tables(module, of_gradients=False))
        for name, table in tables.items():
            self._recorder.broadcast(round_, table, kind=self._kind(name), to=to)
        if to is None:
            self._sent = tables

    def upload(self, round_: int, client: Hashable, module: Any, *, to: Hashable = Recorder.SERVER) -> None:
        """Record what a client answers: call it when its training of a round is over."""
        for name, table in self._tables(module, of_gradients=self._sends == "gradients"):
            before = self._sent.get(name)
            if before is None or before.shape != table.shape:
                raise InputError(
                    f"parameter {name!r:.80} must be broadcast before it is uploaded, in one shape"
                )
            rows = table - before if self._sends == "changes" else table
            self._recorder.upload(round_, client, rows, kind=self._kind(name), to=to)

    def _kind(self, name: str) -> str:
        if name == self._items:
            return "item"
        return name if nearest(name, RECORDED) is None else f"model.{name}"

    def _tables(self, module: Any, *, of_gradients: bool) -> Iterator[tuple[str, np.ndarray]]:
        """Parameters as tables, that of items first; they are copied, for training goes on in place."""
        found = {name: one for name, one in module.named_parameters() if not name.startswith(self._private)}
        if self._items not in found:
            raise InputError(
                f"items must name a parameter of the module that is not private, got {self._items!r:.80}; it "
                f"has {', '.join(found)!s:.200}"
            )
        for name in sorted(found, key=lambda one: one != self._items):
            tensor = found[name].grad if of_gradients else found[name]
            yield name, np.zeros_like(_table(found[name])) if tensor is None else _table(tensor)


def _table(tensor: Any) -> np.ndarray:
    """A copy of a tensor as rows of numbers; a vector has one a row."""
    whole = tensor.detach().cpu()
    whole = whole.to_dense() if whole.is_sparse else whole
    whole = whole.float() if "bfloat16" in str(whole.dtype) else whole  # NumPy has no such numbers
    array = np.array(whole.numpy())
    return array.reshape(len(array), -1) if array.ndim else array.reshape(1, 1)
