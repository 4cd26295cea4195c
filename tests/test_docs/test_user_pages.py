"""The pages of docs/ hold what they say: commands, files, logs, messages.

The commands of a user page run in an empty folder, with mmrank from a wheel (conftest.py). Those of
the fast pages run by default, too, from the checkout.
"""

import functools
import re
import sys

import pytest
from docs_blocks import BLOCK, PAGES, ROOT, blocks, documents, output_of

TUTORIALS = ROOT / 'configs' / 'tutorials'
#: User page, the figure that its output ends with, and the least value.
FAST = [('pytorch', r'stable AP: +AP ([\d.]+)', 0.75)]
SLOW = [
    ('recommendation', r'top_k/precision@5: ([\d.]+)', 18),
    ('detector', r'coco/bbox_mAP_50: ([\d.]+)', 0.05),
    ('retrieval', r'retrieval/mAP: ([\d.]+)', 80),
    ('long_tail', r'ranking/mAP: ([\d.]+)', 30),
    ('self_supervised', r'retrieval/mAP: ([\d.]+)', 30),
    ('image_text', r'TR@5: ([\d.]+)', 20),
    ('other_detectors', r'mAP: ([\d.]+)', 0.02),
    ('sentence_transformers', r'stable AP: Recall@1 ([\d.]+)', 0.25),
    ('comparing_losses', r'report\.md', None),
]


@pytest.fixture
def folder(tmp_path):
    for name in ('configs', 'tools'):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def check_page(name, pattern, least, run):
    page = PAGES / 'users' / f'{name}.md'
    output = run(blocks(page, 'bash'))
    found = re.findall(pattern, output)
    assert found, output[-2000:]
    if least is not None:
        assert float(found[-1]) >= least
    # The log of the page names nothing that the output lacks.
    log = '\n'.join(blocks(page, 'text'))
    for key in set(re.findall(r'([\w/@]+): +(?:AP )?[-\d]', log)):
        assert f'{key}:' in output, key


@pytest.mark.processes
@pytest.mark.parametrize(('name', 'pattern', 'least'), FAST)
def test_page_runs(name, pattern, least, folder):
    check_page(name, pattern, least, lambda x: output_of(x, folder))


@pytest.mark.slow
@pytest.mark.parametrize(('name', 'pattern', 'least'), FAST + SLOW)
def test_newcomer_runs(name, pattern, least, newcomer):
    pytest.importorskip('mmdet')
    pytest.importorskip('mmpretrain')
    if name == 'sentence_transformers':
        # Its trainer needs it.
        pytest.importorskip('datasets')
    check_page(name, pattern, least, newcomer)


def test_every_user_page_runs():
    pages = {path.stem for path in (PAGES / 'users').glob('*.md')}
    assert pages == {name for name, _, _ in FAST + SLOW}


def test_tutorials_are_short_and_shown():
    shown = set()
    for path in (PAGES / 'users').glob('*.md'):
        shown |= set(re.findall(r'--8<-- "([^"]+)"', path.read_text('utf-8')))
    for path in TUTORIALS.iterdir():
        if path.suffix in ('.py', '.yaml'):
            assert len(path.read_text('utf-8').splitlines()) <= 40, path
            assert path.relative_to(ROOT).as_posix() in shown


@functools.cache
def sources():
    """Text of each tool, and of what gives options to all of them."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_text('utf-8')
        for path in [
            *(ROOT / 'tools').rglob('*.py'),
            ROOT / 'mmrank/apis/entry_point.py',
            *(ROOT / 'configs/tutorials').glob('*.py'),
        ]
    }


def options_of(tool):
    """Options that the tool's source, or what it imports, defines."""
    text = sources()[tool]
    for module in re.findall(r'from ((?:mmrank|research)[\w.]+) import', text):
        path = module.replace('.', '/').replace('research/', 'tools/research/') + '.py'
        text += sources().get(path, '')
    found = set(re.findall(r"'(--[a-z][\w-]+)'", text))
    # Options that are made in a loop: f'--num-{split}', f'--{name}'.
    starts = re.findall(r"f'(--[a-z-]*)\{", text)
    return found, tuple(starts)


@pytest.mark.parametrize('path', documents(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_commands_name_tools_and_options_that_are_there(path):
    text = path.read_text('utf-8').replace('\\\n', ' ')
    makefile = (ROOT / 'Makefile').read_text('utf-8')
    for line in re.findall(r'python[\d.]* ((?:tools|configs)/[^`\n]*)', text):
        tool, *rest = line.replace('"', ' ').split()
        assert tool in sources(), line
        options, starts = options_of(tool)
        for word in rest:
            if word.startswith('--'):
                # argparse.BooleanOptionalAction makes --no-x of --x.
                names = {word, word.replace('--no-', '--')}
                assert names & options or (starts and word.startswith(starts))
    for target in re.findall(r'\bmake ((?:test|docs|demo|env)[\w-]*)', text):
        assert re.search(rf'^{target}:', makefile, re.MULTILINE), target
    for extra in re.findall(r"'\.\[(\w+)\]'", text):
        assert f"'{extra}':" in (ROOT / 'setup.py').read_text('utf-8')


def test_every_tool_is_listed():
    page = (PAGES / 'tools.md').read_text('utf-8')
    for path in (ROOT / 'tools').rglob('*.*'):
        text = path.suffix in ('.py', '.sh') and path.read_text('utf-8')
        if text and ("__name__ == '__main__'" in text or '#!' in text[:2]):
            assert path.name in page, path


def test_readme_is_short():
    text = (ROOT / 'README.md').read_text('utf-8')
    assert len(text.splitlines()) <= 150
    assert len(text.split()) <= 900


@pytest.mark.parametrize('path', documents(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path):
    text = BLOCK.sub('', path.read_text('utf-8'))
    for target in re.findall(r'\]\(([^)\s]+)\)', text):
        if '://' not in target and not target.startswith('#'):
            file = path.parent / target.split('#')[0]
            assert file.exists(), target


def messages():
    sys.path.insert(0, str(ROOT / 'docs'))
    try:
        import messages
    finally:
        sys.path.pop(0)
    return messages


def test_messages_are_read_from_the_source():
    found = {m.text: m for m in messages().all_messages()}
    assert len(found) > 500
    known = found['config file ... does not exist.']
    assert known.kind == 'UserError'
    assert known.fix.startswith('pass its path relative to')
    assert known.path == 'mmrank/apis/entry_point.py'
    page = messages().as_markdown()
    assert all(f'`{text}`' in page for text in found if '`' not in text)
