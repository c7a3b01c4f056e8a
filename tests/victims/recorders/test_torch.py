"""A live PyTorch program: item embeddings and a network, trained by several clients and recorded."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import factorleak as fl
from reports.page.systems import systems_of
from victims.common.errors import InputError

torch = pytest.importorskip("torch")
USERS, ITEMS, K, RATED = 3, 12, 3, 5
PRIVATE = ["user"]


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.user = torch.nn.Embedding(USERS, K)
        self.items = torch.nn.Embedding(ITEMS, K)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(2 * K, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))

    def forward(self, user, item):
        p, q = self.user(user), self.items(item)
        return (p * q).sum(-1) + self.mlp(torch.cat([p, q], -1))[:, 0]


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    rated = [rng.permutation(ITEMS)[:RATED] for _ in range(USERS)]
    return Network(), rated, [rng.integers(1, 6, RATED) for _ in range(USERS)]


def trained(model, user, items, ratings):
    local = copy.deepcopy(model)
    step = torch.optim.SGD(local.parameters(), 0.05)
    item, target = torch.tensor(items), torch.tensor(ratings).float()
    step.zero_grad()
    ((local(torch.full_like(item, user), item) - target) ** 2).mean().backward()
    step.step()
    return local


def recorded(path, program, **options):
    model, rated, ratings = program
    model, sent = copy.deepcopy(model), {}
    rule = {"upload": "weights"} if options.get("sends", "weights") == "weights" else {}
    with fl.Recorder(path, rating_levels=range(1, 6), name="our recommender 2.3", rule=rule) as recorder:
        module = fl.RecordedModule(recorder, items="items.weight", private=PRIVATE, **options)
        for round_ in range(2):
            module.broadcast(round_, model)
            locals_ = [trained(model, user, rated[user], ratings[user]) for user in range(USERS)]
            for user, local in enumerate(locals_):
                module.upload(round_, user, local)
                sent[round_, user] = local
            means = [
                torch.stack(each).mean(0) for each in zip(*(one.parameters() for one in locals_), strict=True)
            ]
            with torch.no_grad():
                for parameter, mean in zip(model.parameters(), means, strict=True):
                    parameter.copy_(mean)
        for user in range(USERS):
            recorder.truth(user, rated[user], ratings[user])
    return sent


def test_all_that_is_sent_is_held(tmp_path, program):
    sent = recorded(tmp_path / "t", program)
    transcript = fl.open_transcript(tmp_path / "t")
    assert transcript.messages.n_rows == 2 * USERS * RATED
    view = transcript.view("server")
    assert not any(name.startswith("user") for name in view.told)
    for name, parameter in sent[1, 2].mlp.named_parameters(prefix="mlp"):
        rows = view.told[name]
        here = (rows.round == 1) & (rows.sender == 2)
        table = parameter.detach().numpy().reshape(len(parameter), -1)
        np.testing.assert_array_equal(rows.numbers[here], table.astype(float))
        assert transcript.manifest.kinds[name].of == "model"
    facts = dict(fl.check_transcript(tmp_path / "t", identified=False).facts)
    assert facts["protocol"] == "our recommender 2.3, observed-only"
    assert facts["rows of kind mlp.0.weight"] == "32 rows of 6 numbers, held and read by no attack"


def test_it_is_audited(tmp_path, program):
    recorded(tmp_path / "t", program)
    rows = fl.audit_recording(tmp_path / "t", attacks=["rated-set", "spectral"])
    assert [one.name for one in systems_of(rows.to_dict("records"))] == [
        "our recommender 2.3 on t, without a defense"
    ]
    sets = rows[(rows["attack"] == "rated-set") & (rows["metric"] == "rated_set_auc")]
    assert sets["value"].tolist() == [1.0]  # rows that training left alone are not those of rated items


@pytest.mark.parametrize("sends", ["changes", "gradients"])
def test_changes_and_gradients(tmp_path, program, sends):
    """The step was one of 0.05 along the gradient."""
    sent = recorded(tmp_path / "t", program, sends=sends)
    view = fl.open_transcript(tmp_path / "t").view("server")
    gradient = sent[0, 0].items.weight.grad.numpy()[np.sort(program[1][0])]
    (uploads,) = [
        one for batch in view.batches() if 0 in batch.users for one in batch.rounds if one.round == 0
    ]
    scale = -0.05 if sends == "changes" else 1.0
    np.testing.assert_allclose(uploads.gradients[0], scale * gradient, atol=1e-6)


def test_what_it_refuses(tmp_path, program):
    model = program[0]
    with fl.Recorder(tmp_path / "t", rating_levels=[1]) as recorder:
        with pytest.raises(InputError, match="sends must be one of weights, changes, gradients, got 'all'"):
            fl.RecordedModule(recorder, items="items.weight", sends="all")
        with pytest.raises(
            InputError, match=r"items must name a parameter .* got 'item'; it has user.weight, it"
        ):
            fl.RecordedModule(recorder, items="item").broadcast(0, model)
        module = fl.RecordedModule(recorder, items="items.weight", private="user")
        with pytest.raises(
            InputError, match=r"parameter 'items.weight' must be broadcast before it is uploaded"
        ):
            module.upload(0, "a", model)
        module.broadcast(0, model)
        module.upload(0, "a", model)


def test_jacobians_of_each_library(tmp_path):
    """Of a small network, by differences, by JAX and by PyTorch."""
    import jax.numpy as jnp

    rng = np.random.default_rng(1)
    q, p, w = rng.normal(size=(4, 3)), rng.normal(size=3), rng.normal(size=(3, 2))
    ways = {"np": (np, np.asarray), "jnp": (jnp, jnp.asarray), "torch": (torch, torch.as_tensor)}
    for round_, (library, made) in enumerate(ways.values()):
        with fl.Recorder(tmp_path / str(round_), rating_levels=[1]) as recorder:
            recorder.broadcast(0, q)
            recorder.upload(0, "a", q)
            given = [made(one) for one in (p, q, w)]
            recorder.jacobian(
                0, lambda user, rows, rest, library=library: library.tanh((rows * user) @ rest), *given
            )
        told = fl.open_transcript(tmp_path / str(round_)).view("server").told["item-jacobian"]
        slope = (1 - np.tanh((q * p) @ w) ** 2)[:, :, None] * w.T * p
        np.testing.assert_allclose(told.numbers, slope.reshape(4, -1), atol=1e-5)
