"""The notebooks of docs/ run, and become pages of the site."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / 'docs' / 'notebooks').glob('*.py'))
#: Notebook: what it needs, how many pictures it shows, the figure that it prints and the least
#: value.
RUNS = {
    'detector_by_ap': (('mmdet', 'pycocotools'), 3, r'mAP +│ +([\d.]+) │', 5),
    'losses_in_pytorch': ((), 1, r'stable AP +[\d.]+ \+- [\d.]+ +([\d.]+) \+-', 0.5),
    'recommendations': (('mmengine',), 1, r'unbiased +top_k/precision@5 +([\d.]+)', 15),
    'temperatures': (('mmpretrain',), 3, r'after 40 epochs: +([\d.]+)', 70),
}


@pytest.fixture
def pages():
    for name in ('jupytext', 'nbconvert'):
        pytest.importorskip(name)
    sys.path.insert(0, str(ROOT / 'docs'))
    try:
        import notebook_pages
    finally:
        sys.path.pop(0)
    return notebook_pages


def written(notebook, folder, name):
    import nbformat

    nbformat.write(notebook, folder / f'{name}.ipynb')


def text_of(notebook):
    """What the cells print."""
    outputs = [o for cell in notebook.cells for o in cell.get('outputs', ())]
    texts = [o.get('text', '') or o.get('data', {}).get('text/plain', '') for o in outputs]
    # rich prints bold words and colours by escape sequences.
    return re.sub(r'\x1b\[[\d;]*m', '', '\n'.join(texts))


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize('source', SOURCES, ids=lambda path: path.stem)
def test_notebook_runs(source, pages, tmp_path, monkeypatch):
    import jupytext
    from nbclient import NotebookClient

    needs, pictures, pattern, least = RUNS[source.stem]
    for name in needs:
        pytest.importorskip(name)
    for name in ('configs', 'tools'):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.setenv('PYTHONPATH', str(ROOT))
    notebook = jupytext.read(source)
    NotebookClient(
        notebook,
        timeout=1800,
        kernel_name='python3',
        resources=dict(metadata=dict(path=str(tmp_path))),
    ).execute()
    output = text_of(notebook)
    found = re.findall(pattern, output)
    assert found, output
    assert float(found[-1]) >= least

    written(notebook, tmp_path, source.stem)
    page = pages.page_of(source, tmp_path)
    assert page.executed
    shown = [name for name in page.files if name.endswith('.png')]
    assert len(shown) == pictures
    assert all(f']({name})' in page.markdown for name in shown)


def test_the_list_above_is_complete():
    assert {source.stem for source in SOURCES} == set(RUNS)


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
    written(notebook, tmp_path, 'short')
    page = pages.page_of(source, tmp_path)
    assert page.executed
    assert '    one' in page.markdown
    assert [*page.files] == ['short.ipynb']
    assert 'make notebooks' not in page.markdown

    source.write_text(source.read_text() + '\nprint(2)\n')
    page = pages.page_of(source, tmp_path)
    assert not page.executed
    assert '    one' not in page.markdown
