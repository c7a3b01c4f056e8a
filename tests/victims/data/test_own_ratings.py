"""Ratings of one's own: columns, filters, interactions, tables beside them, databases, Yelp and Douban."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

from victims.common.errors import InputError
from victims.data.loaders import load, source_of
from victims.data.subsets import split_by

ROWS = pd.DataFrame(
    {
        "uid": ["ann", "ann", "ann", "bob", "bob", "eve"],
        "sku": ["x", "y", "z", "x", "y", "x"],
        "stars": [1.0, 2.5, 4.0, 5.0, 3.0, 2.0],
        "when": [30, 10, 20, 40, 0, 50],
        "text": ["a", "b,c", "d", "e", "f", "g"],
    }
)
NAMED = "user=uid,item=sku,rating=stars,time=when"


def lost(ratings) -> list[str]:
    return list(map(str, ratings.losses))


def written(folder: Path, form: str) -> Path:
    """The same rows in one of the formats."""
    return stored(folder / f"mine.{form}", ROWS)


def stored(path: Path, rows: pd.DataFrame, table: str = "reviews") -> Path:
    """A table in the format of the path's ending."""
    if path.suffix in (".csv", ".tsv"):
        rows.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    elif path.suffix == ".parquet":
        rows.to_parquet(path)
    elif path.suffix == ".jsonl":
        rows.to_json(path, orient="records", lines=True)
    elif path.suffix == ".sqlite":
        with sqlite3.connect(path) as connection:
            rows.to_sql(table, connection, index=False)
        connection.close()
    else:
        with duckdb.connect(str(path)) as connection:
            connection.execute(f"CREATE TABLE {table} AS SELECT * FROM rows")
    return path


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet", "jsonl", "sqlite", "duckdb"])
def test_every_format_gives_the_same_ratings(tmp_path, form):
    ratings = load(f"{written(tmp_path, form)}:{NAMED}")
    assert ratings.user_ids.tolist() == ["ann", "bob", "eve"]
    assert ratings.item_ids.tolist() == ["x", "y", "z"]
    assert ratings.matrix().toarray().tolist() == [[1, 2.5, 4], [5, 3, 0], [2, 0, 0]]
    np.testing.assert_array_equal(ratings.times, [30, 10, 20, 40, np.nan, 50])
    name = f"mine.{form}"
    assert lost(ratings) == [f"{name}: 1 of 6 times lost: empty, 0 or no time; the rows stay"]


class TestColumns:
    def test_guessed_names_are_told(self, tmp_path):
        path = tmp_path / "r.csv"
        path.write_text("UserId,MovieId,Score\n1,2,3\n")
        (note,) = load(str(path)).notes
        assert note == "columns guessed: user is 'UserId', item is 'MovieId', rating is 'Score'"

    def test_a_column_that_is_not_there_is_named(self, tmp_path):
        path = written(tmp_path, "csv")
        with pytest.raises(InputError, match=r"must name a column 'user'.*user=NAME"):
            load(str(path))
        with pytest.raises(InputError, match="must name a column 'item'"):
            load(f"{path}:user=uid,item=nothing,rating=stars")

    def test_options_that_are_unknown_are_refused(self, tmp_path):
        with pytest.raises(InputError, match="did you mean 'min_ratings'"):
            load(f"{written(tmp_path, 'csv')}:min_rating=3")
        with pytest.raises(InputError, match="min_ratings of the data must be a whole number"):
            load(f"{written(tmp_path, 'csv')}:min_ratings=many")

    def test_a_file_of_that_name_is_that_file(self, tmp_path):
        path = tmp_path / "odd:user=a.csv"
        path.write_text("user,item,rating\n1,2,3\n")
        assert source_of(str(path)).user is None
        assert load(str(path)).n_ratings == 1

    def test_columns_of_a_published_set_are_not_named(self, tmp_path):
        (tmp_path / "ratings.csv").write_text("user,item,rating\n1,2,3\n")
        with pytest.raises(InputError, match="give the file itself"):
            load(f"{tmp_path}:user=uid")
        assert load(f"{tmp_path / 'ratings.csv'}:user=user").n_ratings == 1

    def test_times_that_were_guessed_and_are_none_are_counted(self, tmp_path):
        path = tmp_path / "r.csv"
        path.write_text("user,item,rating,timestamp\n1,2,3,yesterday\n1,3,3,2020-01-01\n1,4,3,2911-02-01\n")
        ratings = load(str(path))
        assert np.isnan(ratings.times).tolist() == [True, False, True]
        with pytest.raises(InputError, match=r"line 2: time must be seconds since 1970.*'yesterday'"):
            load(f"{path}:time=timestamp")

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ("user=a,user=b", "has the option user twice"),
            ("min_ratings=2.7", "must be a whole number"),
            ("min_ratings=" + "9" * 400, "must be a whole number below"),
            ("user=uid,item=uid,rating=stars", "a column must hold one thing"),
            (f"{NAMED},table=reviews", "is no database"),
            ("implicit=perhaps", "must be true or false"),
        ],
    )
    def test_what_is_meant_must_be_clear(self, tmp_path, options, says):
        with pytest.raises(InputError, match=says) as refused:
            load(f"{written(tmp_path, 'csv')}:{options}")
        assert len(str(refused.value)) < 400

    @pytest.mark.parametrize("given", [[], {}, 2.7])
    def test_values_of_other_types(self, tmp_path, given):
        with pytest.raises(InputError):
            load(str(written(tmp_path, "csv")), {"implicit": given})
        with pytest.raises(InputError):
            load(str(written(tmp_path, "csv")), {"min_ratings": given})
        with pytest.raises(InputError, match="takes no options"):
            load("synthetic", {"user": "a"})

    def test_two_columns_that_may_be_the_time(self, tmp_path):
        path = tmp_path / "r.csv"
        path.write_text("user,item,rating,time,timestamp\n1,2,3,10,20\n")
        ratings = load(str(path))
        assert ratings.times is None
        assert ratings.notes == ("several columns may be the time, none is taken: 'time', 'timestamp'",)
        assert load(f"{path}:time=timestamp").times.tolist() == [20]


class TestInteractions:
    def test_without_a_rating_column_every_row_is_one(self, tmp_path):
        path = tmp_path / "plays.csv"
        path.write_text("user,item\n1,5\n1,6\n2,5\n")
        ratings = load(str(path))
        assert ratings.levels == (1.0,)
        assert ratings.values.tolist() == [1, 1, 1]
        assert ratings.notes == ("no rating column: every row is an interaction, rated 1",)

    def test_an_unknown_column_may_be_the_rating(self, tmp_path):
        with pytest.raises(InputError, match="rating=NAME, or say implicit=true"):
            load(f"{written(tmp_path, 'csv')}:user=uid,item=sku")

    @pytest.mark.parametrize("form", ["csv", "parquet"])
    def test_counts(self, tmp_path, form):
        frame = pd.DataFrame({"user": [1, 1, 2, 2], "item": [5, 6, 5, 7], "plays": [1000, 0, 3, 1]})
        path = tmp_path / f"plays.{form}"
        frame.to_csv(path, index=False) if form == "csv" else frame.to_parquet(path)
        ratings = load(f"{path}:rating=plays,implicit=true")
        assert ratings.matrix().toarray().tolist() == [[1, 0], [1, 1]]
        assert lost(ratings)[-1] == f"plays.{form}: 1 of 4 rows lost: their count is 0"

    def test_a_count_below_0_is_refused_with_its_line(self, tmp_path):
        path = tmp_path / "plays.csv"
        path.write_text("user,item,plays\n1,5,0\n1,6,-1\n")
        with pytest.raises(InputError, match="line 3: rating must be a count >= 0, got '-1'"):
            load(f"{path}:rating=plays,implicit=true")


class TestFilters:
    def test_users_and_items_with_few_ratings_until_none_is_left(self, tmp_path):
        """Leaving out z leaves ann with two; leaving out eve leaves x with two."""
        ratings = load(f"{written(tmp_path, 'csv')}:{NAMED},min_ratings=2,min_item_ratings=2")
        assert ratings.user_ids.tolist() == ["ann", "bob"]
        assert ratings.item_ids.tolist() == ["x", "y"]
        why = "min_ratings=2, min_item_ratings=2"
        assert lost(ratings)[-3:] == [
            f"mine: 1 of 3 users lost: {why}",
            f"mine: 1 of 3 items lost: {why}",
            f"mine: 2 of 6 ratings lost: {why}",
        ]
        np.testing.assert_array_equal(ratings.times, [30, 10, 40, np.nan])

    def test_nothing_left_is_said(self, tmp_path):
        with pytest.raises(InputError, match="nothing is left with min_ratings=4"):
            load(f"{written(tmp_path, 'csv')}:{NAMED},min_ratings=4")


class TestBeside:
    def test_attributes_of_users(self, tmp_path):
        (tmp_path / "users.csv").write_text("uid,sex,town\nbob,m,Ulm\nzoe,f,Rom\nann,f,\n")
        ratings = load(f"{written(tmp_path, 'csv')}:{NAMED},attributes=users.csv")
        assert ratings.attribute_names == ("sex=f", "sex=m", "sex=unknown", "town=Ulm", "town=unknown")
        assert ratings.attribute_groups == ((0, 1, 2), (3, 4))
        assert ratings.attributes.tolist() == [[1, 0, 0, 0, 1], [0, 1, 0, 1, 0], [0, 0, 1, 0, 1]]
        assert lost(ratings)[-2:] == [
            "users.csv: 1 of 3 users lost: not in this table, which says nothing of them",
            "users.csv: 1 of 3 rows lost: about users without ratings",
        ]

    def test_features_of_items(self, tmp_path):
        (tmp_path / "items.tsv").write_text("sku\tprice\tkind\nx\t2.5\tred|big\nz\t1\tred\nq\t9\tblue\n")
        ratings = load(f"{written(tmp_path, 'csv')}:{NAMED},features=items.tsv")
        assert ratings.item_feature_names == ("price", "kind=big", "kind=blue", "kind=red")
        assert ratings.item_features.tolist() == [[2.5, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 1]]

    @pytest.mark.parametrize("form", ["csv", "tsv", "parquet", "jsonl", "sqlite", "duckdb"])
    def test_every_format_says_the_same_of_users_and_items(self, tmp_path, form):
        """Before: CSV and TSV alone."""
        people = pd.DataFrame({"uid": ["bob", "zoe", "ann"], "town": ["Ulm", "Rom", None]})
        people.insert(1, "age", pd.array([30, 20, None], "Int64"))
        goods = pd.DataFrame({"sku": ["x", "z", "q"], "price": [2.5, 1, 9]})
        goods["kind"] = ["red|big", "red", "blue"]
        for name, frame in (("people", people), ("goods", goods)):
            stored(tmp_path / f"{name}.{form}", frame)
        beside = f"attributes=people.{form},features=goods.{form}"
        ratings = load(f"{written(tmp_path, 'csv')}:{NAMED},{beside}")
        assert ratings.attribute_names == ("age=30", "age=unknown", "town=Ulm", "town=unknown")
        assert ratings.attributes.tolist() == [[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]]
        assert ratings.item_feature_names == ("price", "kind=big", "kind=blue", "kind=red")
        assert ratings.item_features.tolist() == [[2.5, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 1]]

    @pytest.mark.parametrize("form", ["sqlite", "duckdb"])
    def test_tables_of_one_database(self, tmp_path, form):
        path = written(tmp_path, form)
        stored(path, pd.DataFrame({"uid": ["ann", "bob"], "town": ["Ulm", "Rom"]}), "people")
        stored(path, pd.DataFrame({"a": ["ann", "eve"], "b": ["bob", "ann"]}), "friends")
        data = f"{path}:{NAMED},table=reviews,attributes={path.name}#people,trust={path.name}#friends"
        ratings = load(data)
        assert ratings.attribute_names == ("town=Rom", "town=Ulm", "town=unknown")
        assert ratings.trust.tolist() == [[0, 1], [2, 0]]
        with pytest.raises(InputError, match="must hold one table, got"):
            load(f"{path}:{NAMED},table=reviews,attributes={path.name}")
        with pytest.raises(InputError, match="must hold a table 'nobody'"):
            load(f"{path}:{NAMED},table=reviews,attributes={path.name}#nobody")
        (tmp_path / "users.csv").write_text("uid,town\nann,Ulm\n")
        with pytest.raises(InputError, match="is no database, so it has no table 'people'"):
            load(f"{path}:{NAMED},table=reviews,attributes=users.csv#people")

    def test_lists_and_flags_of_json(self, tmp_path):
        rows = [{"sku": "x", "kind": ["red", "big"]}, {"sku": "y", "sold": True}, {"sku": "z", "kind": []}]
        (tmp_path / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        ratings = load(f"{written(tmp_path, 'csv')}:{NAMED},features=items.jsonl")
        assert ratings.item_feature_names == ("kind=big", "kind=red", "sold=true")
        assert ratings.item_features.tolist() == [[1, 1, 0], [0, 0, 1], [0, 0, 0]]
        (tmp_path / "items.jsonl").write_text('{"sku": "x", "kind": {"red": 1}}\n')
        with pytest.raises(InputError, match="line 1: kind must be a number, a text or a list"):
            load(f"{written(tmp_path, 'csv')}:{NAMED},features=items.jsonl")

    def test_types_that_are_no_cells_of_a_table(self, tmp_path):
        frame = pd.DataFrame({"sku": ["x"], "kind": [["red", "big"]]})
        frame.to_parquet(tmp_path / "items.parquet")
        with pytest.raises(InputError, match=r"column 'kind' must hold numbers or text, it holds 'VARCHAR"):
            load(f"{written(tmp_path, 'csv')}:{NAMED},features=items.parquet")

    def test_a_table_that_is_not_small(self, tmp_path):
        pd.DataFrame({"uid": range(5_000_000)}).to_parquet(tmp_path / "users.parquet")
        with pytest.raises(InputError, match="lies beside the ratings; leave columns or rows out"):
            load(f"{written(tmp_path, 'csv')}:{NAMED},attributes=users.parquet")

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(InputError, match=r"nobody\.csv must be there"):
            load(f"{written(tmp_path, 'csv')}:{NAMED},attributes=nobody.csv")

    def test_a_table_without_rows(self, tmp_path):
        (tmp_path / "items.csv").write_text("sku,price\n")
        with pytest.raises(InputError, match="at least one row below its header"):
            load(f"{written(tmp_path, 'csv')}:{NAMED},features=items.csv")

    def test_a_column_of_names_is_no_category(self, tmp_path):
        frame = pd.DataFrame({"user": range(1500), "name": [f"n{k}" for k in range(1500)]})
        frame.to_csv(tmp_path / "users.csv", index=False)
        pd.DataFrame({"user": range(1500), "item": 1, "rating": 3}).to_csv(tmp_path / "r.csv", index=False)
        with pytest.raises(InputError, match="at most 1,000 categories, got 1,500"):
            load(f"{tmp_path / 'r.csv'}:attributes=users.csv")

    @pytest.mark.parametrize(
        "content", ["ann bob\nann bob\nbob bob\neve zoe\neve ann\n", "trustor trustee\nann bob\neve ann\n"]
    )
    def test_trust(self, tmp_path, content):
        (tmp_path / "trust.txt").write_text(content)
        ratings = load(f"{written(tmp_path, 'csv')}:{NAMED},trust=trust.txt")
        assert ratings.trust.tolist() == [[0, 1], [2, 0]]
        if "trustor" not in content:
            assert lost(ratings)[-3:] == [
                "trust.txt: 1 of 5 statements of trust lost: of users without ratings",
                "trust.txt: 1 of 5 statements of trust lost: of oneself",
                "trust.txt: 1 of 5 statements of trust lost: repeated",
            ]

    def test_somebody_may_be_called_user(self, tmp_path):
        (tmp_path / "r.csv").write_text("user,item,rating\nuser,1,2\nann,1,3\n")
        (tmp_path / "trust.txt").write_text("user ann\n")
        assert load(f"{tmp_path / 'r.csv'}:trust=trust.txt").trust.tolist() == [[1, 0]]

    def test_trust_follows_the_users_that_stay(self, tmp_path):
        (tmp_path / "trust.txt").write_text("ann eve\nbob ann\n")
        ratings = load(f"{written(tmp_path, 'csv')}:{NAMED},trust=trust.txt,min_ratings=2")
        assert ratings.trust.tolist() == [[1, 0]]


class TestDatabases:
    @pytest.mark.parametrize("form", ["sqlite", "duckdb"])
    def test_one_of_several_tables_is_named(self, tmp_path, form):
        path = written(tmp_path, form)
        with (sqlite3 if form == "sqlite" else duckdb).connect(str(path)) as connection:
            connection.execute('CREATE TABLE "o""ther" (a INTEGER)')
        connection.close()
        with pytest.raises(InputError, match="table=NAME"):
            load(f"{path}:{NAMED}")
        with pytest.raises(InputError, match="must hold a table 'none'"):
            load(f"{path}:{NAMED},table=none")
        assert load(f"{path}:{NAMED},table=reviews").n_ratings == 6

    @pytest.mark.parametrize("form", ["sqlite", "duckdb"])
    def test_views_are_not_run(self, tmp_path, form):
        path = tmp_path / f"v.{form}"
        with (sqlite3 if form == "sqlite" else duckdb).connect(str(path)) as connection:
            connection.execute("CREATE VIEW reviews AS SELECT 1 AS user, 2 AS item, 3 AS rating")
        connection.close()
        with pytest.raises(InputError, match="must hold one table, got none"):
            load(str(path))

    @pytest.mark.parametrize("form", ["sqlite", "duckdb"])
    def test_a_damaged_file_is_one_line(self, tmp_path, form):
        path = written(tmp_path, form)
        content = bytearray(path.read_bytes())
        content[: len(content) // 2] = b"\x07" * (len(content) // 2)
        path.write_bytes(content)
        with pytest.raises(InputError, match="cannot be read"):
            load(f"{path}:{NAMED}")

    def test_changes_that_are_not_in_the_file_yet(self, tmp_path):
        path = tmp_path / "open.sqlite"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE reviews (user, item, rating)")
            connection.execute("INSERT INTO reviews VALUES (1, 2, 3)")
            connection.commit()
            with pytest.raises(InputError, match=r"open\.sqlite-wal beside it holds changes"):
                load(str(path))

    def test_virtual_tables_are_not_read(self, tmp_path):
        path = tmp_path / "virtual.sqlite"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("create/**/virtual table reviews using fts5(user, item, rating)")
            connection.commit()
        with pytest.raises(InputError, match="must hold a table 'reviews'"):
            load(f"{path}:table=reviews")

    def test_pages_that_are_shared_end(self, tmp_path):
        """A root page whose every child is the same leaf: more rows than the file can hold."""
        path = tmp_path / "shared.sqlite"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA page_size = 512")
            connection.execute("CREATE TABLE reviews (user, item, rating)")
            connection.executemany("INSERT INTO reviews VALUES (?, 1, 2)", [(k % 90,) for k in range(9000)])
            connection.commit()
            (root,) = connection.execute("SELECT rootpage FROM sqlite_master").fetchone()
        content = bytearray(path.read_bytes())
        page = (root - 1) * 512
        assert content[page] == 5  # an inner page of a table
        cells = int.from_bytes(content[page + 3 : page + 5], "big")
        places = [int.from_bytes(content[page + 12 + 2 * k : page + 14 + 2 * k], "big") for k in range(cells)]
        for place in places:
            content[page + place : page + place + 4] = root.to_bytes(4, "big")  # itself
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"by its size|cannot be read"):
            load(str(path))

    def test_a_value_that_is_too_long(self, tmp_path):
        path = tmp_path / "long.sqlite"
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE reviews (user, item, rating)")
            connection.execute("INSERT INTO reviews VALUES (zeroblob(8000000), 1, 2)")
        connection.close()
        with pytest.raises(InputError, match="cannot be read"):
            load(str(path))


class TestJsonLines:
    @pytest.mark.parametrize(
        ("line", "says"),
        [
            ("[1, 2]", "one JSON object"),
            ("{", "one JSON object"),
            ('{"user": [1], "item": 2, "rating": 3}', "user must be a finite number or a text"),
            ('{"user": 1, "item": 2, "rating": "many"}', "rating must be a finite number"),
            ('{"user": 1, "item": 2}', "rating must be a finite number"),
            ("[" * 100_000, "must not be nested so deep"),
            ('{"user": 1e400, "item": 2, "rating": 3}', "user must be a finite number or a text, got inf"),
            ('{"user": 1, "item": 2, "rating": 3, "user": 4}', "'user' is given twice"),
        ],
    )
    def test_a_bad_line_is_named(self, tmp_path, line, says):
        path = tmp_path / "r.jsonl"
        path.write_text('{"user": 1, "item": 2, "rating": 3}\n' + line + "\n")
        with pytest.raises(InputError, match=f"line 2.*{says}"):
            load(str(path))


class TestPublished:
    def test_yelp(self, tmp_path):
        rows = (("u1", 4.0, "x\n", "2018-07-07 22:09:11"), ("u2", 1.0, "", "2012-01-03 15:28:18"))
        reviews = [
            {
                "review_id": "r",
                "user_id": user,
                "business_id": "b1",
                "stars": stars,
                "text": text,
                "date": day,
            }
            for user, stars, text, day in rows
        ]
        users = [{"user_id": "u1", "friends": "u2, u9"}, {"user_id": "u2", "friends": "None"}]
        for name, rows in (("review", reviews), ("user", users)):
            path = tmp_path / f"yelp_academic_dataset_{name}.json"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        ratings = load(f"{tmp_path}:trust=yelp_academic_dataset_user.json")
        assert ratings.name == "yelp"
        assert ratings.values.tolist() == [4, 1]
        assert ratings.times.tolist() == [1531001351.0, 1325604498.0]
        assert ratings.trust.tolist() == [[0, 1]]

    @pytest.mark.parametrize("what", ["book", "movie", "music"])
    def test_douban(self, tmp_path, what):
        path = tmp_path / f"{what}reviews_cleaned.txt"
        path.write_text(
            f'"user_id"\t"{what}_id"\t"rating"\t"labels"\t"comment"\t"time"\t"ID"\n'
            '7\t3\t5\t"a|b"\t"good, ""very"""\t"2011-02-01"\t1\n'
            '7\t4\t-1\t" "\t" "\t"2011-02-02"\t2\n'
            '8\t3\t2\t" "\t" "\t"2012-03-04"\t3\n'
        )
        ratings = load(str(tmp_path))
        assert ratings.name == f"douban-{what}"
        assert ratings.values.tolist() == [5, 2]
        (loss,) = ratings.losses
        assert (loss.count, loss.what, loss.why) == (1, "rows", "without stars")
        assert ratings.times.tolist() == [1296518400.0, 1330819200.0]


class TestSplits:
    @pytest.fixture
    def ratings(self, tmp_path):
        path = tmp_path / "r.csv"
        path.write_text("user,item,rating,time\n1,1,1,50\n1,2,2,10\n1,3,3,40\n2,1,4,30\n2,2,5,20\n3,1,1,60\n")
        return load(str(path))

    def test_the_last_of_each_user(self, ratings):
        train, test = split_by("last:2", ratings, 0.2, 0)
        assert test.values.tolist() == [1, 3, 4]  # of user 3, who has one, none
        assert train.values.tolist() == [2, 5, 1]

    def test_the_latest_of_all(self, ratings):
        train, test = split_by("time", ratings, 0.5, 0)
        assert sorted(test.times) == [40, 50, 60]
        assert sorted(train.times) == [10, 20, 30]

    @pytest.mark.parametrize("rule", ["last", "last:0", "last:-1", "last:x", "never"])
    def test_other_rules_are_refused(self, ratings, rule):
        with pytest.raises(InputError, match="a split must be one of random, time, last:K"):
            split_by(rule, ratings, 0.2, 0)

    def test_times_that_are_missing_are_said(self, tmp_path):
        with pytest.raises(InputError, match=r"1 of 6 ratings without a time"):
            split_by("time", load(f"{written(tmp_path, 'csv')}:{NAMED}"), 0.2, 0)
        with pytest.raises(InputError, match="tells no times"):
            split_by("last:1", load("synthetic:users=20,items=30,ratings_per_user=8"), 0.2, 0)
