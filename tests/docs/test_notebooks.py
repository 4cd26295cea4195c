"""The notebooks of docs/ become pages of the site; ``make notebooks`` runs them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def pages(monkeypatch):
    for name in ('jupytext', 'nbconvert'):
        pytest.importorskip(name)
    monkeypatch.syspath_prepend(ROOT / 'docs')
    import notebook_pages

    return notebook_pages


def test_only_a_copy_of_this_source_is_shown(pages, tmp_path):
    import jupytext
    import nbformat

    source = tmp_path / 'short.py'
    source.write_text('# %% [markdown]\n# # Title\n\n# %%\nprint(1)\n')
    page = pages.page_of(source, tmp_path)
    assert page.markdown.startswith('# Title\n\n!!! note')
    assert 'make notebooks' in page.markdown
    assert (page.files, page.executed) == ({}, False)

    notebook = jupytext.read(source)
    output = nbformat.v4.new_output('stream', name='stdout', text='one\n')
    notebook.cells[1].outputs = [output]
    nbformat.write(notebook, tmp_path / 'short.ipynb')
    page = pages.page_of(source, tmp_path)
    assert page.executed
    assert '    one' in page.markdown
    assert [*page.files] == ['short.ipynb']
    assert 'make notebooks' not in page.markdown

    source.write_text(source.read_text() + '\nprint(2)\n')
    page = pages.page_of(source, tmp_path)
    assert not page.executed
    assert '    one' not in page.markdown


def test_every_notebook_is_in_the_navigation():
    text = (ROOT / 'docs' / 'mkdocs.yml').read_text('utf-8')
    found = {path.stem for path in (ROOT / 'docs/notebooks').glob('*.py')}
    assert found == {*re.findall(r'notebooks/(\w+)\.md', text)}
