"""Loaders of published rating files, and the one function that finds the right one.

``load`` takes what the command line calls ``--data``: ``synthetic``, the name of a fetched data set,
or a path. A directory is recognised by the files in it, a file by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from victims.common.errors import InputError
from victims.data.fetch import FETCHABLE, cached
from victims.data.movielens_files import movielens_1m, movielens_100k, movielens_100k_atomic, movielens_csv
from victims.data.plain_files import delimited, filmtrust_tab, parquet, whitespace
from victims.data.rating_files import find_file, is_there, path_of
from victims.data.ratings import Ratings
from victims.data.synthetic import generate, parse_synthetic
from victims.data.tables import shown


def load(source: str) -> Ratings:
    """Load ratings from a name or a path.

    Parameters
    ----------
    source : str
        ``synthetic`` (optionally with sizes, ``synthetic:users=500``), ``ml-100k`` or ``filmtrust``
        once fetched, or a directory or file in a published format: MovieLens 100K, 1M or CSV,
        FilmTrust, Epinions, or CSV / Parquet with columns user, item, rating. Text files may be
        gzip-compressed.

    Raises
    ------
    InputError
        If nothing is there, the format is not recognised, or a row breaks a rule.
    """
    if source == "synthetic" or source.startswith("synthetic:"):
        return generate(parse_synthetic(source))
    path = path_of(source)
    if not is_there(path):
        if source in FETCHABLE:
            path = cached(source)
        else:
            raise InputError(
                f"--data {shown(source)} is neither a file nor a known name; use --data synthetic, "
                f"a fetched name ({', '.join(FETCHABLE)}) or a path"
            )
    try:
        return _recognise(path)(path)
    except MemoryError:
        raise InputError(f"{path} does not fit in memory; subsample it") from None
    except pa.ArrowException as error:
        raise InputError(f"{path} cannot be read: {error}; convert it") from None


def _recognise(path: Path) -> Callable[[Path], Ratings]:
    if path.is_dir():
        for name, loader in DIRECTORIES.items():
            if find_file(path, name):
                return loader
        raise InputError(
            f"{path} must contain one of {', '.join(DIRECTORIES)} (or .gz), none is there; "
            "give the file itself if it has another name"
        )
    name = path.name.removesuffix(".gz")
    if name in DIRECTORIES:
        return lambda file: DIRECTORIES[name](file.parent)
    suffix = Path(name).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            f"{path} has no known format; expected {', '.join(SUFFIXES)} or one of the published "
            f"file names {', '.join(DIRECTORIES)}"
        )
    return SUFFIXES[suffix]


DIRECTORIES: dict[str, Callable[[Path], Ratings]] = {
    "u.data": movielens_100k,
    "ml-100k.inter": movielens_100k_atomic,
    "ratings.dat": movielens_1m,
    "ratings.csv": movielens_csv,
    "ratings.tab": filmtrust_tab,
    "ratings.txt": whitespace,
}
SUFFIXES: dict[str, Callable[[Path], Ratings]] = {
    ".csv": delimited,
    ".tsv": delimited,
    ".txt": whitespace,
    ".parquet": parquet,
}
