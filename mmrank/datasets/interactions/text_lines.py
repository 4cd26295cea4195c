"""Lines of a text file, read with errors that name the file."""

import gzip
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

#: Characters of the longest line: a packed file of a few megabytes can hold one that fills the
#: memory.
LONGEST_LINE = 1 << 24


def text_lines(path: str | Path) -> Iterator[str]:
    """Read a file in UTF-8 line by line.

    Args:
        path: The file, unpacked if its name ends in ``.gz``.

    Yields:
        The lines with their ends.

    Raises:
        OSError: If it cannot be opened.
        ValueError: If it is not UTF-8, its ``.gz`` is damaged, or a line is too long. The message
            names the file, the place and the fix.
    """
    number = 0
    try:
        with _open(Path(path)) as file:
            lines = iter(partial(file.readline, LONGEST_LINE), '')
            for number, line in enumerate(lines, 1):
                if len(line) == LONGEST_LINE and line[-1] not in '\r\n':
                    raise ValueError(
                        f'{path}, line {number} has more than {LONGEST_LINE:,} characters. Fix: '
                        'write one entry a line, or unpack the file again'
                    )
                yield line
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        # A block is decoded when no whole line is left of those before.
        number += 1 + error.object[: error.start].count(b'\n')
        raise ValueError(
            f'{path}, line {number} is not UTF-8 text: it holds the byte 0x{byte:02x}. Fix: save '
            'the file as UTF-8, as by `iconv -f latin1 -t utf-8`'
        ) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(
            f'{path} is not a whole gzip file: {error}, after line {number}. Fix: fetch it again, '
            "or leave '.gz' out of its name if it is not packed"
        ) from error


def _open(path: Path):
    if '\0' in str(path):
        raise ValueError(f'the file name {str(path)!r} holds a null character')
    # A byte-order mark, as spreadsheets write it, is no part of a name.
    if path.suffix == '.gz':
        return gzip.open(path, 'rt', encoding='utf-8-sig', newline='')
    return path.open(encoding='utf-8-sig', newline='')
