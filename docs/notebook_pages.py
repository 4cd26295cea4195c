"""The notebooks of docs/notebooks/ as pages of the site.

`make notebooks` executes them into docs/notebooks/executed/, which git ignores. A page shows the
executed copy. Where there is none, or the source
has changed since, it shows the source and says how to execute it.
"""

from pathlib import Path
from typing import NamedTuple

import jupytext
import nbformat
from nbconvert import MarkdownExporter

SOURCES = Path(__file__).resolve().parent / 'notebooks'
EXECUTED = SOURCES / 'executed'
_HOW_TO_OPEN = (
    'The source is `docs/notebooks/{name}.py`; Jupyter opens it as a notebook by jupytext.'
)
_EXECUTED = f'[Download the notebook]({{name}}.ipynb). {_HOW_TO_OPEN}\n'
_NOT_EXECUTED = (
    '!!! note "Without its outputs"\n'
    '    `make notebooks` executes the notebooks; then `make docs` shows '
    f'what they print and draw. {_HOW_TO_OPEN}\n'
)


class NotebookPage(NamedTuple):
    """One notebook as Markdown.

    Attributes:
        markdown: Text of the page.
        files: By path beside the page, the pictures and the notebook itself.
        executed: Whether the outputs are there.
    """

    markdown: str
    files: dict[str, bytes]
    executed: bool


def sources() -> list[Path]:
    """The notebooks, in jupytext's percent format."""
    return sorted(SOURCES.glob('*.py'))


def page_of(source: Path, executed_in: Path = EXECUTED) -> NotebookPage:
    """Make the page of a notebook.

    Args:
        source: Its file in the percent format.
        executed_in: Folder of the executed copies.
    """
    name = source.stem
    notebook = jupytext.read(source)
    copy = executed_in / f'{name}.ipynb'
    executed = False
    if copy.is_file():
        found = nbformat.read(copy, as_version=4)
        executed = _cells(found) == _cells(notebook)
        notebook = found if executed else notebook
    notebook.metadata.setdefault('language_info', dict(name='python'))
    text, resources = MarkdownExporter().from_notebook_node(
        notebook, resources=dict(output_files_dir=name)
    )
    note = (_EXECUTED if executed else _NOT_EXECUTED).format(name=name)
    title, rest = text.strip().split('\n', 1)
    files = dict(resources.get('outputs', {}))
    if executed:
        files[f'{name}.ipynb'] = copy.read_bytes()
    return NotebookPage(f'{title}\n\n{note}{rest}', files, executed)


def _cells(notebook: nbformat.NotebookNode) -> list[tuple[str, str]]:
    return [(cell.cell_type, cell.source) for cell in notebook.cells]
