"""Files of others as a stream of text, plain or gzip-compressed, in bounded memory.

Every limit is checked while the file is read, so that a file that breaks one ends at once.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path

from victims.common.errors import InputError
from victims.common.given_files import existing_file

MIB = 1 << 20
MAX_BYTES = 2048 * MIB  # after decompression: three times the ratings of MovieLens 25M
MAX_LINE = MIB
MAX_RATIO = 200  # decoded bytes for each packed one; rating files reach 5 to 20
FREE_BYTES = 64 * MIB  # decoded bytes that any archive may hold
BLOCK = 256 << 10
GZIP = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")


def byte_blocks(path: Path, most: int = MAX_BYTES) -> Iterator[bytes]:
    """Read the content of a regular file in blocks, decompressed if it is a gzip archive."""
    existing_file(path)
    total = 0
    try:
        with path.open("rb") as raw:
            packed = raw.read(len(GZIP)) == GZIP
            raw.seek(0)
            stream = gzip.GzipFile(fileobj=raw) if packed else raw
            while block := stream.read(BLOCK):
                total += len(block)
                if total > most:
                    raise InputError(
                        f"{path} must hold at most {most // MIB:,} MiB"
                        f"{' after decompression' if packed else ''}; split or subsample it"
                    )
                check_ratio(path, total, raw.tell())
                yield block
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}; check or download it again") from None


def check_ratio(path: Path, decoded: int, packed: int) -> None:
    """Refuse a file that grows beyond measure when it is decoded."""
    if decoded > max(FREE_BYTES, MAX_RATIO * packed):
        raise InputError(
            f"{path} must not grow to more than {MAX_RATIO} times its packed size beyond "
            f"{FREE_BYTES // MIB} MiB, got {decoded / max(packed, 1):,.0f} times; check or unpack it"
        )


class TextStream(io.TextIOBase):
    """The text of a file from its first line on that is not skipped, without the blanks at its end."""

    def __init__(
        self, path: Path, encoding: str, separator: str, skip_lines: int = 0, most: int = MAX_BYTES
    ) -> None:
        super().__init__()
        self.quotes = False
        self.delivered = 0
        self._path, self._encoding = path, encoding
        self._separator = separator.encode() if len(separator) > 1 else b""
        self._skip = skip_lines
        self._lines = 0  # before the block at hand
        self._blocks = _whole_lines(path, most)
        self._texts = self._without_blank_end()
        self._text = ""

    def readable(self) -> bool:
        """Yes."""
        return True

    def read(self, size: int | None = -1) -> str:
        """At most ``size`` characters; an empty text at the end."""
        if not self._text:
            self._text = next(self._texts, "")
        end = BLOCK if size is None or size < 0 else size
        text, self._text = self._text[:end], self._text[end:]
        self.delivered += len(text)
        return text

    def peek(self) -> str:
        """The text that is read next: one or more lines, unless the last one ends the file."""
        if not self._text:
            self._text = next(self._texts, "")
        return self._text

    def close(self) -> None:
        """Close the file."""
        self._blocks.close()
        super().close()

    def _without_blank_end(self) -> Iterator[str]:
        blanks = ""  # held back: they count only if something follows
        for block in self._blocks:
            text = blanks + self._decoded(block)
            kept = text.rstrip()
            blanks = text[len(kept) :]
            if len(blanks) > MAX_LINE:
                raise InputError(
                    f"{self._path} line {self._lines}: must hold at most {MAX_LINE // MIB} MiB of "
                    "blank lines in a row; remove them"
                )
            if kept:
                yield kept

    def _decoded(self, block: bytes) -> str:
        if self._lines == 0:
            self._refuse_wide(block)
            block = block.removeprefix(BYTE_ORDER_MARK)
        start = self._lines
        self._lines += line_ends(block)
        if b"\0" in block or (self._separator and b"\x01" in block):
            bad = min(offset for offset in (block.find(b"\0"), block.find(b"\x01")) if offset >= 0)
            self._refuse_byte(block, bad, start)
        while self._skip and block:
            block = block.partition(b"\n")[2]
            self._skip -= 1
        try:
            text = block.decode(self._encoding)
        except UnicodeDecodeError as error:
            # counted from the end, as skipped lines are no longer in the block
            self._refuse_byte(block, error.start, self._lines - line_ends(block))
        self.quotes = self.quotes or '"' in text
        return text.replace(self._separator.decode(), "\x01") if self._separator else text

    def _refuse_wide(self, block: bytes) -> None:
        if block.startswith(WIDE_MARKS):
            raise InputError(
                f"{self._path} must be {self._encoding} text, it is UTF-16 or UTF-32; save it anew"
            )

    def _refuse_byte(self, block: bytes, offset: int, lines: int) -> None:
        raise InputError(
            f"{self._path} line {lines + line_ends(block[:offset]) + 1}: must be {self._encoding} text, "
            f"got byte 0x{block[offset]:02x}; convert the file"
        )


def line_ends(block: bytes) -> int:
    """Count line ends: LF or CR LF, else CR.

    Examples
    --------
    >>> line_ends(b"a\\r\\nb\\n"), line_ends(b"a\\rb\\r")
    (2, 2)
    """
    return block.count(b"\n") or block.count(b"\r")


def _whole_lines(path: Path, most: int) -> Generator[bytes, None, None]:
    """Blocks that end with a line, but for the last one."""
    rest, lines = b"", 0
    for block in byte_blocks(path, most):
        data = rest + block
        end = data.rfind(b"\n") + 1 or data.rfind(b"\r", 0, -1) + 1
        rest = data[end:]
        lines += line_ends(data[:end])
        if len(rest) > MAX_LINE:
            raise InputError(
                f"{path} line {lines + 1}: must have at most {MAX_LINE // MIB} MiB; check what the file is"
            )
        if end:
            yield data[:end]
    if rest:
        yield rest
