"""Published rating sets: FilmTrust, Epinions, Yelp and Douban."""

from __future__ import annotations

from pathlib import Path

from victims.common.errors import InputError
from victims.common.files import reason_of
from victims.data.rated import Columns, rated_file, rated_text
from victims.data.ratings import Ratings
from victims.data.tables import Layout, shown

YELP_REVIEWS = "yelp_academic_dataset_review.json"
DOUBAN = ("bookreviews_cleaned.txt", "moviereviews_cleaned.txt", "musicreviews_cleaned.txt")


def path_of(source: str) -> Path:
    """Make a path of what a user wrote, ``~`` included."""
    try:
        return Path(source).expanduser()
    except RuntimeError:
        raise InputError(
            f"--data {shown(source)} names no user of this machine; write the path out"
        ) from None


def is_there(path: Path) -> bool:
    """Tell whether something stands at a path."""
    try:
        return path.exists()
    except OSError as error:  # a name too long, a folder that may not be entered
        raise InputError(f"{path} cannot be read: {reason_of(error)}; check the name") from None


def find_file(directory: Path, name: str) -> Path | None:
    """Find a file in a directory, plain or gzip-compressed."""
    return next(filter(is_there, (directory / name, directory / f"{name}.gz")), None)


def required(directory: Path, name: str) -> Path:
    """Find a file of a published set, plain or gzip-compressed."""
    path = find_file(directory, name)
    if path is None:
        raise InputError(f"{directory} must contain {name} (or {name}.gz) of the published set")
    return path


def whitespace(path: Path) -> Ratings:
    """Read ``user item rating`` on each line without header: FilmTrust and Epinions."""
    if path.is_dir():
        path = required(path, "ratings.txt")
    name = path.parent.resolve().name if path.name.startswith("ratings.") else path.stem
    return rated_text(path, Layout(" ", ("user", "item", "rating"), quoted=False)).ratings(name)


def filmtrust_tab(directory: Path) -> Ratings:
    """Read FilmTrust in the tab-separated file with three header lines that ``data fetch`` brings."""
    layout = Layout("\t", ("user", "item", "rating"), skip_lines=3, quoted=False)
    return rated_text(required(directory, "ratings.tab"), layout).ratings("filmtrust")


def yelp(directory: Path) -> Ratings:
    """Read Yelp's reviews, https://business.yelp.com/data/resources/open-dataset/, as JSON lines.

    ``trust=yelp_academic_dataset_user.json`` adds friends.
    """
    columns = Columns({"user": "user_id", "item": "business_id", "rating": "stars", "time": "date"})
    return rated_file(required(directory, YELP_REVIEWS), columns).ratings("yelp")


def douban(directory: Path, name: str) -> Ratings:
    """Read reviews of books, movies or music on Douban: tab-separated, with ``rating`` 1..5 and a day.

    Reviews without stars (empty, 0 or -1) are left out and counted. The files are published by the authors of
    F. Zhu et al., IJCAI 2020, doi:10.24963/ijcai.2020/415.
    """
    what = name.removesuffix("reviews_cleaned.txt")
    named = {"user": "user_id", "item": f"{what}_id", "rating": "rating", "time": "time"}
    columns = Columns(named, some_unrated=True)
    return rated_text(required(directory, name), Layout("\t"), columns).ratings(f"douban-{what}")
