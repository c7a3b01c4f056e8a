"""What a round costs: counts and scaling, and the grid of numbers of items and systems."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from audit.experiments.round_cost import cost_of
from audit.factories import make_defenses, make_victim
from audit.papers.cost import run, wide
from audit.papers.plans import Sheet
from reports.paper_figures import cost_figure
from victims.common.errors import InputError
from victims.data.subsets import most_rated, of_users
from victims.protocols.base import Defense, Rows
from victims.protocols.fedmf import FedMF
from victims.protocols.fedmvmf import FedMVMF


class TestCost:
    def test_counts_and_scaling(self, ratings):
        found = cost_of(FedMF(factors=40), ratings, make_defenses("paillier:key_bits=1024"), sample=8)
        counts = np.diff(ratings.indptr)
        parts = 3  # 40 numbers, 15 to a ciphertext
        assert found.ciphertexts == parts * counts.max()
        assert found.bytes_sent == parts * 256 * counts.max()
        np.testing.assert_allclose(found.bytes_sent_mean, parts * 256 * counts.mean())
        assert found.bytes_received == parts * 256 * ratings.n_items
        np.testing.assert_allclose(found.encryption_mean * counts.max(), found.encryption * counts.mean())
        assert found.transfer(8e6) == (found.bytes_sent + found.bytes_received) / 1e6
        assert found.transfer(8e6, mean=True) == (found.bytes_sent_mean + found.bytes_received) / 1e6
        assert min(found.encryption, found.aggregation, found.decryption) > 0
        assert found.subtraction > found.aggregation  # by the inverses
        assert found.ciphertexts_decrypted == parts * ratings.n_items
        assert found.ciphertexts_added == parts * counts.sum()
        assert found.server_update == 0  # the server never decrypts

    def test_in_the_clear_and_sampled(self, ratings):
        sampled = cost_of(
            FedMVMF(weighting="include-unrated"), ratings, make_defenses("unrated-sampling:rho=1")
        )
        counts = np.minimum(2 * np.diff(ratings.indptr), ratings.n_items) + ratings.n_attributes
        assert sampled.bytes_sent == 48 * counts.max()
        assert sampled.encryption == sampled.decryption == sampled.ciphertexts == 0

    def test_phe_beside_it(self, ratings, tmp_path):
        sheet = Sheet(victim_options={"factors": 20}, items=(20, 60), key_bits=(1024,), sample=16)
        rows = wide(run(sheet, ratings, tmp_path))
        assert [row["system"] for row in rows] == ["in the clear", "phe, 1024 bit", "packed, 1024 bit"] * 2
        assert all(row["seconds_transfer_mean"] < row["seconds_transfer"] for row in rows)
        assert all(row["seconds_local_update_mean"] > 0 for row in rows)
        for row in rows:
            server = row["seconds_aggregation"] + row["seconds_server_update"]
            both = row["slowest"] - row["seconds_transfer"]
            np.testing.assert_allclose(row["server_share"], server / both)
        assert rows[1]["ciphertexts"] == 10 * rows[2]["ciphertexts"]  # 20 numbers: 20 or 2

    def test_figures_2_and_3(self, ratings, tmp_path):
        """Counts are the same for the same rows, whoever encrypts; the paper's server subtracts."""
        rows = {}
        for upload in ("part-text", "full-text"):
            options = {"factors": 8, "upload": upload}
            sheet = Sheet(victim_options=options, key_bits=(1024,), sample=4)
            rows[upload] = wide(run(sheet, ratings, tmp_path))
            _, phe, packed = rows[upload]
            for name in ("server_share_counted", "server_share_counted_subtracting"):
                np.testing.assert_allclose(phe[name], packed[name])
            assert phe["server_share_counted"] < phe["server_share_counted_subtracting"]
            assert np.isnan(rows[upload][0]["server_share_counted"])
        most, everything = np.diff(ratings.indptr).max(), ratings.n_ratings
        exponentiations = 1024 * 1.5 * (most + ratings.n_items / 4)
        counted = everything / (everything + exponentiations)
        np.testing.assert_allclose(rows["part-text"][1]["server_share_counted"], counted)
        one, two = (cost_figure(rows, "phe, 1024 bit", tmp_path / name) for name in ("one", "two"))
        assert [a.read_bytes() for a in one] == [b.read_bytes() for b in two]

    @pytest.mark.parametrize("victim", ["dpmf-yang", "pdmfrec"])
    def test_along_a_graph(self, ratings, tmp_path, victim):
        """Each row goes once along every edge of its sender."""
        rows = run(Sheet(victim=victim, victim_options={"factors": 4}, items=(40,)), ratings, tmp_path)
        assert {row["status"] for row in rows} == {"ran"}, rows[0]["reason"]
        (row,) = wide(rows)
        some = most_rated(ratings, 40)
        protocol = make_victim(victim, {"factors": "4"})
        state = protocol.init(some, 0)
        edges = protocol.network(state, some).edges
        everybody = np.arange(some.n_users)
        sent = [rows.sender for rows in protocol.uploads(state, some, everybody)]
        per_client = np.bincount(np.concatenate(sent), minlength=some.n_users)
        receivers = np.bincount(edges.sender, minlength=some.n_users)
        assert row["messages"] == (per_client * receivers).sum() > row["rows"] == per_client.sum()
        assert row["bytes"] == 36 * row["messages"]
        assert row["bytes_sent"] == 36 * (per_client * receivers).max() > row["bytes_sent_mean"]
        np.testing.assert_allclose(row["bytes_received_mean"], row["bytes"] / some.n_users)
        assert row["seconds_round"] > 0

    def test_the_stand_in_has_no_cost(self, ratings):
        with pytest.raises(InputError, match="the cost of ideal encryption says nothing"):
            cost_of(FedMF(factors=4), ratings, make_defenses("paillier:ideal=true"))


@dataclass(frozen=True)
class KeepsBack(Defense):
    """Every second row stays on the device."""

    name: str = "keeps-back"

    def uploaded(self, rows, ratings, round_, seed):
        keep = np.arange(rows.sender.size) % 2 == 0
        return Rows(rows.sender[keep], rows.kind[keep], rows.index[keep], rows.gradient[keep])


def test_rows_that_a_defense_keeps_back_cost_nothing(ratings):
    alone = of_users(ratings, np.array([0]))
    everything, half = (cost_of(FedMF(factors=4), alone, defenses) for defenses in ([], [KeepsBack()]))
    n_rows = alone.n_ratings
    assert half.bytes_sent / everything.bytes_sent == pytest.approx((n_rows + 1) // 2 / n_rows)
