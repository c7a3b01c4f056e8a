"""Pages of Parquet files that declare more than they may, with a footer that does not say so."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from victims.common.errors import InputError
from victims.data.loaders import load
from victims.data.parquet_pages import Page, page_header


def varint(number: int) -> bytes:
    """As the compact protocol writes an i32 or i64: zigzag, seven bits a byte."""
    number <<= 1
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd"])
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_of_every_form_are_walked(tmp_path, compression, dictionary, version):
    rng = np.random.default_rng(0)
    columns = {name: rng.integers(1, 6, 5000) for name in ("user", "item", "rating")}
    columns["user"] = rng.permutation(5000)
    path = tmp_path / "r.parquet"
    form = {"compression": compression, "use_dictionary": dictionary, "data_page_version": version}
    pq.write_table(pa.table(columns), path, row_group_size=2000, data_page_size=1000, **form)
    assert load(str(path)).n_ratings == 5000


def test_a_footer_that_understates_its_pages(tmp_path):
    """One text of many megabytes: its page declares them, the footer a few."""
    path = tmp_path / "r.parquet"
    text = "y" * (120 << 20)
    table = pa.table({"user": [text], "item": [1], "rating": [3]})
    pq.write_table(table, path, compression="zstd", use_dictionary=False, write_statistics=False)
    content = path.read_bytes()
    declared = pq.ParquetFile(path).metadata.row_group(0).column(0).total_uncompressed_size
    small = 1 << 20  # takes as many bytes in the footer, and no ratio catches it
    at = content.rindex(varint(declared))
    assert len(varint(small)) == len(varint(declared))
    forged = content[:at] + varint(small) + content[at + len(varint(small)) :]
    path.write_bytes(forged)
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).total_uncompressed_size == small
    with pytest.raises(InputError, match="pages of at most 64 MiB after decompression, got 120"):
        load(str(path))


@pytest.mark.parametrize("cut", [1, 3, 5, 6])
def test_a_header_that_ends_too_early(cut):
    whole = bytes([0x15, 0x00, 0x15, 0x14, 0x15, 0x08, 0x00])
    assert page_header(whole) == Page(10, 4, 7)
    with pytest.raises(IndexError):
        page_header(whole[:cut])


def test_a_header_that_is_none():
    with pytest.raises(ValueError, match="both of its sizes"):
        page_header(bytes(8))
    with pytest.raises(ValueError, match="nested too deeply"):
        page_header(b"\x1c" * 100)
    with pytest.raises(ValueError, match="too long"):
        page_header(b"\x15" + b"\xff" * 20)
