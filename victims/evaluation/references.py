"""Other people's recommenders that paper 004 compares with, from their own packages: extra ``references``.

SVD++ (Y. Koren, KDD 2008, doi:10.1145/1401890.1401944) of scikit-surprise; weighted matrix factorisation of
implicit feedback (Y. Hu et al., ICDM 2008, doi:10.1109/ICDM.2008.22) of implicit; Gaussian probabilistic
matrix factorisation with a logistic link (R. Salakhutdinov, A. Mnih, NIPS 2007) of cornac. Nothing is written
again; options are the packages' defaults but for the number of factors, the seed and one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from jaxtyping import Float, Int

from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.protocols.base import Products

PACKAGES = {"svd++": "scikit-surprise", "wrmf": "implicit", "gaussian-pmf": "cornac"}
MODULES = {"scikit-surprise": "surprise"}  # where the name of the package is not that of its module
Predict = Callable[[Ratings], np.ndarray]


def version_of(name: str) -> str | None:
    """Version of the package behind a reference; None where it is not installed."""
    try:
        return version(PACKAGES[name])
    except PackageNotFoundError:
        return None


def _package(name: str) -> Any:
    """The module behind a reference."""
    package = PACKAGES[name]
    if version_of(name) is None:
        raise InputError(
            f"{name} needs the package {package}, which is not installed; "
            "run pip install 'factorleak[references]'"
        )
    return import_module(MODULES.get(package, package))


def svd_plus_plus(train: Ratings, values: Float[np.ndarray, " ratings"], factors: int, seed: int) -> Predict:
    """Fit SVD++ to ratings."""
    surprise = _package("svd++")
    low, high = float(values.min()), float(values.max())
    reader = surprise.Reader(rating_scale=(low, high))
    frame = pd.DataFrame({"user": train.users, "item": train.items, "value": values})
    data = surprise.Dataset.load_from_df(frame, reader).build_full_trainset()
    state = seed % 2**32
    fitted = surprise.SVDpp(n_factors=factors, random_state=state).fit(data)

    def predict(test: Ratings) -> np.ndarray:
        pairs = zip(test.users.tolist(), test.items.tolist(), strict=True)
        return np.array([fitted.predict(user, item).est for user, item in pairs])

    return predict


def weighted_factorisation(positives: Ratings, factors: int, seed: int) -> Products:
    """Fit WRMF to pairs."""
    _package("wrmf")
    als = import_module("implicit.als")
    pairs = positives.matrix().astype(np.float32)
    pairs.data[:] = 1
    state = seed % 2**32
    model = als.AlternatingLeastSquares(factors=factors, random_state=state, num_threads=1, use_gpu=False)
    model.fit(sp.csr_matrix(pairs), show_progress=False)
    return Products(np.asarray(model.user_factors, float), np.asarray(model.item_factors, float))


def gaussian_pmf(train: Ratings, values: Float[np.ndarray, " ratings"], factors: int, seed: int) -> Predict:
    """Fit PMF with a logistic link to ratings."""
    cornac = _package("gaussian-pmf")
    triples = list(zip(train.users.tolist(), train.items.tolist(), values.tolist(), strict=True))
    data = cornac.data.Dataset.from_uir(triples, seed=seed % 2**32)
    model = cornac.models.PMF(k=factors, variant="non_linear", seed=seed % 2**32, verbose=False).fit(data)
    mean = float(values.mean())

    def predict(test: Ratings) -> np.ndarray:
        users, items = _numbers(data.uid_map, test.users), _numbers(data.iid_map, test.items)
        known = (users >= 0) & (items >= 0)
        out = np.full(test.n_ratings, mean)
        out[known] = [
            model.score(int(user), int(item)) for user, item in zip(users[known], items[known], strict=True)
        ]
        return out

    return predict


def _numbers(found: dict[int, int], ours: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    return np.array([found.get(int(number), -1) for number in ours])
