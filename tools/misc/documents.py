"""README.md, the READMEs of configs/ and the pages of the site, and their fenced blocks."""

import re
from pathlib import Path
from typing import NamedTuple

#: A fenced block: the words that open it, and its text.
BLOCK = re.compile(r'^```(\{?[^\n]*)\n(.*?)^```', re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block of a document: its line, the words that open it, and its text."""

    page: Path
    line: int
    opening: str
    text: str


def documents(root: Path) -> list[Path]:
    """README.md, the READMEs of configs/, and the pages of the site."""
    found = [root / 'README.md', *sorted(root.glob('configs/*/README.md'))]
    return [*found, *sorted((root / 'docs' / 'pages').rglob('*.md'))]


def blocks_of(page: Path) -> list[Block]:
    """Fenced blocks of a document, from top to bottom."""
    text = page.read_text('utf-8')
    found = []
    for match in BLOCK.finditer(text):
        line = text[: match.start()].count('\n') + 1
        found.append(Block(page, line, match[1].strip(), match[2]))
    return found
