"""Yelp and Douban as they are published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from victims.data.encoded_rows import Chunk
from victims.data.json_lines import json_chunks
from victims.data.rating_files import read_rated, required, simple, text_chunks
from victims.data.ratings import Ratings
from victims.data.text_lines import TextFormat
from victims.data.wanted import Wanted

YELP_REVIEWS = "yelp_academic_dataset_review.json"
DOUBAN = ("bookreviews_cleaned.txt", "moviereviews_cleaned.txt", "musicreviews_cleaned.txt")


def yelp(directory: Path) -> Ratings:
    """Read Yelp's reviews: JSON lines with ``user_id``, ``business_id``, ``stars`` and ``date`` among others.

    ``trust=yelp_academic_dataset_user.json`` adds friends.

    References
    ----------
    Yelp Open Dataset, https://business.yelp.com/data/resources/open-dataset/.
    """
    path = required(directory, YELP_REVIEWS)
    wanted = Wanted({"user": "user_id", "item": "business_id", "rating": "stars", "time": "date"})
    return simple("yelp", read_rated(path, json_chunks(path, wanted), wanted))


def douban(directory: Path, name: str) -> Ratings:
    """Read reviews of books, movies or music on Douban: tab-separated, with ``rating`` 1..5 and a day.

    Reviews without stars (empty, 0 or -1) are left out and counted.

    References
    ----------
    F. Zhu et al., "A Graphical and Attentional Framework for Dual-Target Cross-Domain Recommendation",
    IJCAI 2020, doi:10.24963/ijcai.2020/415, whose authors publish the files.
    """
    path = required(directory, name)
    what = name.removesuffix("reviews_cleaned.txt")
    wanted = Wanted({"user": "user_id", "item": f"{what}_id", "rating": "rating", "time": "time"})
    layout = TextFormat("\t", quoted=True)
    rated = read_rated(path, _with_stars(text_chunks(path, layout, wanted), wanted), wanted)
    return simple(f"douban-{what}", rated)


def _with_stars(chunks: Iterator[Chunk], wanted: Wanted) -> Iterator[Chunk]:
    for chunk in chunks:
        rating = pc.utf8_trim_whitespace(chunk.rating.cast(pa.large_string()).fill_null(""))
        without = np.asarray(pc.is_in(rating, pa.array(["", "0", "-1", "0.0", "-1.0"], pa.large_string())))
        wanted.leave_out("without stars", int(without.sum()))
        rows = np.flatnonzero(~without)
        yield chunk.of_rows(rows)
