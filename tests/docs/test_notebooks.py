"""The notebooks of docs/ run, and become pages of the site."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Notebook: what it needs, how many pictures it shows, the figure that it prints and the least
#: value.
RUNS = {
    'detector_by_ap': (('mmdet', 'pycocotools'), 3, r'mAP +│ +([\d.]+) │', 5),
    'losses_in_pytorch': ((), 1, r'stable AP +[\d.]+ \+- [\d.]+ +([\d.]+) \+-', 0.5),
    'recommendations': (('mmengine',), 1, r'unbiased +top_k/precision@5 +([\d.]+)', 15),
    'temperatures': (('mmpretrain',), 3, r'after 40 epochs: +([\d.]+)', 70),
}


@pytest.fixture
def pages(monkeypatch):
    for name in ('jupytext', 'nbconvert'):
        pytest.importorskip(name)
    monkeypatch.syspath_prepend(ROOT / 'docs')
    import notebook_pages

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
@pytest.mark.parametrize('name', RUNS)
def test_notebook_runs(name, pages, tmp_path, monkeypatch):
    import jupytext
    from nbclient import NotebookClient

    source = ROOT / f'docs/notebooks/{name}.py'
    needs, pictures, pattern, least = RUNS[name]
    for package in needs:
        pytest.importorskip(package)
    for linked in ('configs', 'tools'):
        (tmp_path / linked).symlink_to(ROOT / linked)
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

    written(notebook, tmp_path, name)
    page = pages.page_of(source, tmp_path)
    assert page.executed
    shown = [file for file in page.files if file.endswith('.png')]
    assert len(shown) == pictures
    assert all(f']({file})' in page.markdown for file in shown)


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


def test_every_notebook_is_in_the_navigation_and_runs():
    text = (ROOT / 'docs' / 'mkdocs.yml').read_text('utf-8')
    found = {path.stem for path in (ROOT / 'docs/notebooks').glob('*.py')}
    assert found == {*RUNS} == {*re.findall(r'notebooks/(\w+)\.md', text)}
