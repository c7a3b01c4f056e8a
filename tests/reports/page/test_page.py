"""What a page says of rows, and that nothing of them is obeyed, hidden or turned into comfort."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import product

import numpy as np
import pytest

from reports.page.content import page_of
from reports.page.frontier import frontier, frontier_frame
from reports.page.render import as_html, as_markdown, write_page
from reports.page.summary import summary_of
from reports.page.systems import systems_of
from reports.verdicts import UNASKED
from reports.words import in_words, worse_than_mean
from tests.reports.rows import ran

SEES = {"server": "receives every client's upload", "client:N": "a client, by name or number"}
HOSTILE = "<script>alert(1)</script>\"'&]]>"


def page(rows, title="A page"):
    return page_of(rows, title, SEES, [("command", "factorleak audit")])


def leak(defense="none", adversary: str | None = "server", **changes):
    given = {"victim": "fedmvmf", "data": "ml-100k", "attack": "spectral", "seed": 0, **changes}
    return ran("rated_rating_accuracy", defense=defense, adversary=adversary, **given)


def untested(defense="none", adversary="decrypter", **changes):
    given = {"status": "not applicable", "reason": "nobody decrypts", "verdict": "NOT TESTED", **changes}
    return leak(defense, adversary, **given)


def quality(defense, value, seed):
    given = {"adversary": None, "attack": None, "verdict": "", "value": value, "baseline": 0.6, "seed": seed}
    return leak(defense, **given) | {"metric": "ndcg_at_10"}


class Cells(HTMLParser):
    """Texts of the cells of every table, by its id."""

    def __init__(self):
        super().__init__()
        self.tables, self.table, self.inside = {}, None, False

    def handle_starttag(self, tag, attrs):
        if tag == "table":
            self.table = self.tables.setdefault(dict(attrs)["id"], [])
        if tag == "tr" and self.table is not None:
            self.table.append([])
        self.inside = tag in ("td", "th") or (self.inside and tag not in ("tr", "table"))
        if tag in ("td", "th"):
            self.table[-1].append("")

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.table[-1][-1] += data


def test_a_system_is_no_better_than_its_worst_tested_adversary():
    rows = [
        leak(adversary="eavesdropper", verdict="NO EVIDENCE", advantage=0.0, advantage_high=0.03),
        leak(adversary="server"),
        untested(),
    ]
    (system,) = systems_of(rows)
    assert system.verdict == "LEAK"
    assert "the server reads ratings at 0.971 [0.950, 0.990]" in system.sentence
    assert "best guess without the transcript is 0.345" in system.sentence
    assert "Not tested: decrypter." in system.sentence


def test_what_nobody_answered_is_not_comfort():
    (system,) = systems_of([untested()])
    assert system.verdict == "NOT TESTED"
    assert "says nothing about what leaks" in system.sentence
    (bounded,) = systems_of([leak(verdict="NO EVIDENCE", advantage=0.01, advantage_high=0.04)])
    assert "at most 0.040 by this attack on 943 clients, and no proof against others" in bounded.sentence


def test_a_recording_without_truth_is_not_untested():
    row = leak(value=1.0, baseline=0.0, advantage=1.0) | {"metric": "clients_answered"}
    made = page([row])
    assert made.systems[0].verdict == "LEAK"
    assert made.kinds == ("clients answered, without truth",)
    assert made.summary.severity == "total"
    assert "claims to know the ratings of 100 of 100 clients" in made.summary.sentence
    assert "what is claimed, not what is right" in dict(made.summary.facts)["How sure"]
    sure = row | {"metric": "claimed_probability", "value": 0.81, "verdict": "", "advantage": np.nan}
    made = page([row, sure])
    assert made.claimed.rows == (("server", "spectral", "ratings", "940/943", "0.000", "0.810", "LEAK"),)
    assert "each client's rows are permuted" in as_html(made)
    assert "permuted" not in as_html(page([leak()]))


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({"advantage": 1.0}, "total"),
        ({"advantage": 0.9}, "total"),
        ({"advantage": 0.89}, "large"),
        ({"advantage": 0.2}, "large"),
        ({"advantage": 0.19}, "small"),
        ({"advantage": 0.99, "verdict": "INCONCLUSIVE"}, "none shown"),
        ({"advantage": 0.01, "verdict": "NO EVIDENCE"}, "none shown"),
        ({"status": "not applicable", "verdict": "NOT TESTED"}, "not tested"),
    ],
)
def test_severity_is_by_rule_and_of_the_worst(changes, severity):
    one = leak(**changes)
    assert page([one]).summary.severity == severity
    assert page([one, leak("b")]).summary.severity == "total"
    assert severity in (page([one, untested("b")]).summary.severity, "not tested")


def test_the_first_screen_says_whom_what_who_how_sure_and_what_to_do():
    rows = [leak(), leak(value=0.9) | {"metric": "users_fully_recovered"}, untested()]
    made = summary_of(systems_of(rows), {"command": "factorleak audit", "started, ended": "2026-11-29T10, x"})
    assert made.about == "fedmvmf · ml-100k · 2026-11-29"
    assert made.sentence == "The server gets 97 of 100 ratings right, where a guess gets 34."
    facts = dict(made.facts)
    assert facts["Who is affected"].startswith("940 of 943 clients; of 849 of them all")
    assert facts["What is recovered"] == "ratings: 0.971 [0.950, 0.990], guess 0.345"
    assert facts["By whom"] == "server (total); not tested: decrypter; strongest attack spectral"
    assert "factorleak compare --victim fedmvmf --data ml-100k --update semi-als" in facts["What to do"]
    recorded = summary_of(systems_of([leak(data="x y/rec")]), {"command": "factorleak audit --transcript r"})
    assert "audit --transcript 'x y/rec' --advise" in dict(recorded.facts)["What to do"]
    defended = [*rows, leak("laplace:scale=1", advantage=0.5), leak("laplace:scale=9", advantage=0.1)]
    assert "laplace:scale=9 leaves least" in dict(page(defended).summary.facts)["What to do"]


def test_what_uploads_name_is_open_and_no_attack():
    named = leak(attack=None, verdict="OPEN", advantage=np.nan) | {"metric": "rated_set"}
    lists = leak() | {"metric": "rated_set_auc"}
    made = page([named, lists, leak(advantage=0.1)])
    small, opened = made.readings[0][2]
    assert (small.severity, small.verdict, small.risk) == ("small", "LEAK", "inference")
    assert (opened.severity, opened.verdict, opened.risk) == ("large", "OPEN", "singling out")
    assert made.summary.severity == "large"
    assert made.summary.sentence.startswith("Uploads name the items")
    (alone,) = systems_of([named, untested(adversary="server")])
    assert (alone.verdict, alone.severity) == ("OPEN", "large")


def test_outputs_and_what_is_inferred_have_columns_of_their_own():
    """Who reads messages has not failed at membership, nor an observer of outputs at ratings."""
    silent = untested(adversary="server", reason="a second round is needed", rounds=2)
    told = leak(adversary="outputs", attack="lira", rounds=6) | {"metric": "rating_membership_auc"}
    inferred = leak(value=0.81, baseline=0.73) | {"metric": "inferred_accuracy/gender/ratings"}
    named = leak(attack=None, verdict="OPEN", advantage=np.nan) | {"metric": "rated_set"}
    made = page([silent, told, inferred, named])
    assert made.kinds == ("membership of ratings", "inferred attributes", "rated set")
    by = {adversary: leaks for _, adversary, leaks in made.readings}
    assert by["server"][0].rest == UNASKED
    assert by["server"][1].rest.endswith("gender from ratings")
    assert by["server"][1].risk == "inference"
    assert [one.rest for one in by["outputs"]][1:] == [UNASKED] * 2
    assert [chart.name for chart in made.charts] == ["leakage"]
    assert any("uploads name the items" in words for words in made.charts[0].hovers["leakage-2"])
    assert "dp-fedavg" not in dict(page([told]).summary.facts)["What to do"]
    whole = told | {"metric": "user_membership_auc"}
    assert "dp-fedavg" in dict(page([whole]).summary.facts)["What to do"]
    words = page([inferred]).summary.sentence
    assert words.startswith("The server tells gender from ratings of 81 of 100 clients right")
    area = inferred | {"metric": "inferred_auc/gender/ratings"}
    assert "from another's in 81 of 100 pairs" in page([area]).summary.sentence
    failed = untested("laplace", "server", status="failed", reason="it diverged")
    ((_, _, (silent, *_)),) = (one for one in page([inferred, failed]).readings if "laplace" in one[0].name)
    assert (silent.verdict, silent.rest) == ("NOT TESTED", "failed: it diverged")


def test_ratings_of_implicit_feedback_are_not_missed():
    """All are 1, so that nobody is asked for them: even the guess has no row about them."""
    lists = leak(attack="rated-set", weighting="observed-only") | {"metric": "rated_set_auc"}
    guess = lists | {"attack": "guess-majority", "verdict": ""}
    assert "ratings: NOT TESTED" not in in_words([lists, guess], listed=False)[0]
    stars = guess | {"metric": "rated_rating_accuracy"}
    assert "ratings: NOT TESTED" in in_words([lists, guess, stars], listed=False)[0]


def test_who_sent_what_is_linkability():
    row = leak() | {"metric": "link_precision"}
    assert page([row, untested(adversary="server")]).readings[0][2][-1].risk == "linkability"


def test_what_settles_nothing_is_no_leak():
    """Attacks that answered 40 of 40 clients stood under what was not answered, below their LEAK."""
    whole = {"n_users": 40, "n_abstained": 0, "reason": "there is no truth to score against"}
    few = whole | {"verdict": "INCONCLUSIVE", "value": 0.1, "n_abstained": 36}
    none = whole | {"verdict": "INCONCLUSIVE", "value": 0.0, "n_abstained": 40}
    rows = [leak(**whole), leak(attack="grid", **few), leak(attack="inversion", **none)]
    made = page([row | {"metric": "clients_answered"} for row in rows])
    assert [line[:2] for line in made.silent.rows] == [
        ("grid", "inconclusive"),
        ("inversion", "not answered"),
    ]


def test_a_system_whose_attacks_all_abstained_has_its_lane():
    silent = untested("b", "server") | {"metric": "rating_accuracy"}
    parts = [leak() | {"metric": f"rated_rating_accuracy/{name}"} for name in ("worst_tenth", "rare_items")]
    block = leak() | {"metric": "attribute_group_accuracy/0"}
    made = page([leak(), leak() | {"metric": "rated_set_auc"}, *parts, block, silent])
    charts = {chart.name: [set(words) for words in chart.hovers.values()] for chart in made.charts}
    assert set(charts) == {"leakage", "clients", "items", "attributes"}
    for name, panels in charts.items():
        where = "b, server" if name == "leakage" else "b"
        assert all(f"{where}: NOT TESTED" in words for words in panels), name
    (alone,) = page([silent]).charts
    assert [len(words) for words in alone.hovers.values()] == [1]


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        ("rating_difference_accuracy", "differences"),
        ("rating_difference_size_accuracy", "sizes of differences"),
        ("claimed_rating_accuracy", "nameless"),
    ],
)
def test_differences_are_drawn_where_nobody_guessed_ratings(metric, name):
    """Beside another kind of answers the chart had left out a leak of ratings."""
    row = leak() | {"metric": metric}
    made = page([row, leak() | {"metric": "rated_set_auc"}])
    assert made.kinds[0] == "ratings"
    (chart,) = (chart for chart in made.charts if chart.name == "leakage")
    assert f"spectral, {name}: 0.971" in str(chart.hovers)
    assert name in [text.get_text() for axes in chart.figure.axes for text in axes.texts]
    assert "what it is about" in chart.caption


def test_without_any_attack_nothing_is_said_of_leaks():
    made = page([quality("none", 0.7, 0), quality("none", 0.8, 1)])
    assert "say nothing about what leaks" in made.summary.sentence
    assert made.measured.columns[4:11] == (
        "rounds", "metric", "mean", "sd", "baseline", "baseline is", "seeds",
    )  # fmt: skip
    assert made.measured.rows[0][5:9] == ("ndcg_at_10", "0.75", "0.071", "0.6")
    assert made.measured.rows[0][10] == "2"
    assert made.measured.shared == ()
    html = as_html(made)
    for name in ("method", "findings", "results"):
        assert f'id="{name}"' not in html
        assert f'"#{name}"' not in html
    assert "Threat model" not in as_markdown(made)


def test_a_model_of_no_use_is_named_and_its_seeds_are_one_line():
    why = "the model predicts held-out ratings worse than the training mean"
    errors = [(1.5, why), (1.3, why), (1.0, "")]
    rows = [quality("none", value, seed) | {"reason": reason} for seed, (value, reason) in enumerate(errors)]
    rows = [row | {"metric": "rmse", "baseline": 1.1, "baseline_name": "training mean"} for row in rows]
    assert worse_than_mean(rows) == [f"fedmvmf, none: {why} (RMSE 1.400, training mean 1.100)"]
    assert worse_than_mean(rows[2:]) == []
    (line,) = page(rows).measured.rows
    assert (line[6], line[-1]) == ("1.267", why)


def test_what_nobody_attacked_is_counted_apart():
    other = quality("laplace:b=2", 0.7, 0)
    made = page([leak(), leak(defense="laplace:b=9", adversary="client:3", value=0.8), other])
    verdict = dict(made.summary.facts)["Verdict"]
    assert verdict.startswith("2 configurations: 2 total.")
    assert verdict.endswith("Of 1 more, usefulness or cost alone was measured")
    assert [system.verdict for system in made.systems] == ["LEAK", "LEAK"]
    assert "client:3 reads ratings" in made.systems[1].sentence
    assert "the client:3" not in made.systems[1].sentence
    assert len(made.measured.rows) == 1


def test_claims_that_were_not_tried_are_none_that_hold():
    def bound(verdict):
        return leak(adversary="sums", verdict=verdict) | {"metric": "empirical_epsilon"}

    facts = dict(page([leak(), bound("not refuted"), bound("")]).summary.facts)
    assert facts["Claims"] == "0 of 1 claims of an epsilon are refuted; 1 not tested, or nothing is claimed"


def test_refuted_claims_are_said_and_no_adversary():
    bound = leak(adversary="first round, all", verdict="CLAIM REFUTED", value=1.8, baseline=0.9, ceiling=2.0)
    made = page([leak(), bound | {"metric": "empirical_epsilon"}])
    assert dict(made.summary.facts)["Claims"] == "1 of 1 claims of an epsilon are refuted"
    assert [name for name, _ in made.adversaries] == ["server"]
    assert made.claims.rows[0][4:9] == ("first round, all", "20", "1.800", "0.900", "2.000")


def test_numbers_of_the_page_are_those_of_the_rows():
    rows = [
        leak(defense, who)
        for defense, who in product(("none", "laplace:scale=2"), ("server", "eavesdropper"))
    ]
    reader = Cells()
    reader.feed(as_html(page([*rows, untested()])))
    head, *lines = reader.tables["results"]
    for line, row in zip(lines, rows, strict=True):
        shown = dict(zip(head, line, strict=True))
        assert shown["value"] == f"{row['value']:.3f}"
        assert shown["guess"] == f"{row['baseline']:.3f}"
        assert (shown["defense"], shown["adversary"]) == (row["defense"], row["adversary"])
    assert reader.tables["not-read"][1] == [
        "spectral",
        "not applicable",
        "nobody decrypts",
        "none, decrypter, semi-als/include-unrated",
    ]


def test_nothing_of_a_row_is_obeyed():
    rows = [leak(HOSTILE, HOSTILE, victim=HOSTILE), untested(HOSTILE, reason=HOSTILE)]
    made = page(rows, HOSTILE)
    text = as_html(made)
    assert "<script>alert" not in text
    assert text.count("<script>") == 1
    assert "\n|" not in as_markdown(page([leak("a|b\n|c")])).split("## Findings")[1].split("|c")[0][-3:]


def test_it_needs_no_network_and_ids_do_not_repeat():
    text = as_html(page([leak(d, attack="x") for d in ("none", "b")] + [quality("none", 0.7, 0)]))
    urls = set(re.findall(r"https?://[^\s\"'<>)]+", text))
    assert {url.split("/")[2] for url in urls} <= {"www.w3.org"}  # names of XML, nothing that is loaded
    assert not re.search(r"(?:src|href)=\"(?!#|data:)", text.replace("xlink:href", "href"))
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(ids)
    for target in re.findall(r'href="#([^"]+)"', text):
        assert target in ids


def test_every_mark_says_its_numbers():
    rows = [leak(defense, who) for defense, who in product(("none", "b", "c"), ("server", "peer"))]
    rows = [row | {"value": 0.1 * n} for n, row in enumerate(rows)]
    text = as_html(page([*rows, untested()]))
    hovers = re.findall(r"<title>([^<]+best guess[^<]+|[^<]*NOT TESTED)</title>", text)
    assert len(hovers) == len(rows) + 1
    assert all(any(f"{row['value']:.3f} [" in words for words in hovers) for row in rows)


def test_dominated_means_worse_beyond_the_bars():
    rows = []
    for defense, advantage, mean in (
        ("none", 1.0, 0.8),
        ("bad", 0.9, 0.5),
        ("good", 0.2, 0.79),
        ("same", 0.21, 0.79),
    ):
        bars = {"advantage_low": advantage - 0.05, "advantage_high": advantage + 0.05}
        rows.append(leak(defense, advantage=advantage, **bars))
        rows += [quality(defense, mean + shift, seed) for seed, shift in enumerate((-0.01, 0.01))]
    rows += [quality("unread", 0.7, 0), untested("unread")]
    frame = frontier_frame(systems_of(rows))
    assert set(frame.axis) == {"ndcg_at_10"}
    frame = frame.set_index("system")
    assert frame.dominated.to_dict() == {
        "no defense": False, "bad": True, "good": False, "same": False, "unread": False,
    }  # fmt: skip
    assert np.isnan(frame.advantage["unread"])
    assert "NOT TESTED" in frame.hover["unread"]


def test_no_name_lies_on_another():
    rows = []
    for n, name in enumerate(("none", "laplace:scale=0.1", "gaussian:sigma=1", "top-k:share=0.1", "round")):
        rows.append(leak(name, advantage=0.5 + n / 200, advantage_low=0.3, advantage_high=0.7))
        rows.append(quality(name, 0.8 + n / 1000, 0))
    figure = frontier(systems_of(rows)).figure
    figure.draw_without_rendering()
    places = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(places) == 5
    assert not any(place.count_overlaps(places[:n]) for n, place in enumerate(places))


def test_what_is_left_is_said_of_each_kind():
    lists = {"metric": "rated_set_auc", "attack": "rated-set"}
    rows = [leak(), leak() | lists]
    rows += [leak("laplace:scale=9", advantage=0.1), leak("laplace:scale=9") | lists]
    words = dict(page(rows).summary.facts)["What to do"]
    assert "laplace:scale=9 leaves least of ratings: an advantage of 0.100; none is shown" in words


def test_both_ends_of_usefulness_are_marked():
    rows = [leak(), leak("b", advantage=0.1), *(quality(name, 0.8, 0) for name in ("none", "b"))]
    rows += [quality("none", 0.5, 0) | {"metric": "ndcg_at_10/constant"}]
    rows += [quality("none", 0.9, 0) | {"metric": "rmse", "baseline": 1.2}]
    frame = frontier_frame(systems_of(rows))
    ranking, error = (frame[frame.axis == name].set_index("system") for name in ("ndcg_at_10", "rmse"))
    assert ranking.useful["no defense"] == pytest.approx((0.8 - 0.6) / (1 - 0.6))
    assert ranking.constant["no defense"] == pytest.approx((0.5 - 0.6) / (1 - 0.6))
    assert ranking.undefended.to_dict() == {"no defense": True, "b": False}
    assert error.useful.to_dict() == {"no defense": pytest.approx(0.25)}
    assert error.constant["no defense"] == 0  # the training mean is the constant predictor
    assert as_html(page(rows)).count(">constant predictor</text>") == 2


def test_the_worst_off_stand_beside_the_mean():
    group = {"value": 0.991, "baseline": 0.556, "verdict": "", "advantage": np.nan}
    rows = [leak(value=0.6), leak(**group) | {"metric": "rated_rating_accuracy/worst_tenth"}]
    rows += [
        leak(**group) | {"metric": f"rated_rating_accuracy/{name}"} for name in ("rare_items", "few_ratings")
    ]
    rows += [leak(**group) | {"metric": f"attribute_group_accuracy/{name}"} for name in ("0", "worst_tenth")]
    made = page(rows)
    assert dict(made.summary.facts)["Who is affected"].endswith("; of the worst-off tenth 0.991")
    assert "worst tenth 0.991, guess 0.556" in made.readings[0][2][0].rest
    charts = {chart.name: chart for chart in made.charts}
    assert len(charts["clients"].hovers) == 3  # all, the worst-off tenth, few ratings
    assert len(charts["items"].hovers) == 2
    assert len(charts["attributes"].hovers) == 1
    assert made.systems[0].verdict == "LEAK"


@pytest.mark.parametrize("rows", [[leak()], [untested()], [quality("none", 0.7, 0)]])
def test_the_same_rows_make_the_same_bytes(rows):
    assert as_html(page(rows)) == as_html(page(rows))


def test_rounds_watched_are_a_figure_where_they_differ():
    def watched(rounds, value):
        return leak(rounds=rounds, value=value)

    marks = "Leakage by round"
    both = [watched(1, 0.5), watched(4, 0.9)]
    assert marks in as_html(page(both))
    charts = {chart.name: chart for chart in page([*both, untested(adversary="server", rounds=9)]).charts}
    assert any("NOT TESTED" in words for words in charts["rounds"].hovers["rounds"])
    assert marks not in as_html(page([watched(1, 0.5)]))


def test_figures_say_data_and_clients_and_are_files_for_papers(tmp_path):
    made = page([leak(), leak(n_users=20, adversary="peer")])
    assert made.charts[0].figure.get_supxlabel() == "ml-100k; n = 20 to 943 clients"
    files = write_page(made, tmp_path, "paper")
    assert {path.suffix for path in files} == {".html", ".md", ".svg", ".png", ".pdf"}
    first = [path.read_bytes() for path in files]
    again = write_page(page([leak(), leak(n_users=20, adversary="peer")]), tmp_path / "again", "paper")
    assert [path.read_bytes() for path in again] == first
    assert made.charts[0].figure.get_size_inches()[0] <= 7


def test_one_run_has_no_spread():
    frame = frontier_frame(systems_of([leak(), quality("none", 0.7, 0)]))
    assert np.isnan(frame.spread[0])
    assert "one run" in frame.hover[0]
