"""Documents hold what they say: blocks, commands, options, links, pictures, tables, messages."""

import functools
import importlib
import re
import subprocess
from contextlib import suppress

import pytest
import torch
from docs_blocks import PAGES, ROOT, all_blocks
from walks import entered

import results
from documents import BLOCK, documents
from mmrank import registry
from mmrank.cli.main import COMMANDS
from mmrank.losses import StableAPLoss
from pages.blocks import PICTURES, blocks_of

NOTEBOOKS = sorted((ROOT / 'docs' / 'notebooks').glob('*.py'))


def of_each(paths):
    return pytest.mark.parametrize('path', paths, ids=lambda p: p.relative_to(ROOT).as_posix())


@of_each([*documents(ROOT), *NOTEBOOKS])
def test_links_are_right(path):
    # A link of a notebook may be broken over two lines of a comment.
    text = BLOCK.sub('', path.read_text('utf-8')).replace(
        '\n# ', ' ' if path.suffix == '.py' else '\n# '
    )
    for target in re.findall(r'\]\(([^)\s]+)\)|<(https?:[^>\s]*)>', text):
        target = ''.join(target)
        if '://' in target:
            assert re.fullmatch(r'https://([\w-]+\.)+[a-z]{2,}(/.*)?', target), target
            assert target == target.rstrip('.,;:'), target
        elif not target.startswith('#'):
            assert (path.parent / target.split('#')[0]).exists(), target


@functools.cache
def sources():
    """Text of each tool, and of what gives options to all of them."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_text('utf-8')
        for path in [
            *(ROOT / 'tools').rglob('*.py'),
            *(ROOT / 'mmrank/cli').rglob('*.py'),
            *(ROOT / 'configs/tutorials').glob('*.py'),
        ]
    }


def options_of(tool):
    """Options that the tool's source, or what it imports, defines."""
    text = sources()[tool]
    if command := re.search(r"^    run\('([\w -]+)'\)", text, re.MULTILINE):
        module, _ = COMMANDS[command[1]]
        text = sources()[f'mmrank/cli/{module.replace(".", "/")}.py']
    for module in re.findall(r'from (mmrank[\w.]+) import', text):
        text += sources().get(f'{module.replace(".", "/")}.py', '')
    if 'tool_parser' in text:  # it makes an option of each keyword
        text += sources()['mmrank/cli/options.py']
    found = set(re.findall(r"'(--[a-z][\w-]+)'", text))
    # Options that are made in a loop: f'--num-{split}', f'--{name}'.
    starts = re.findall(r"f'(--[a-z-]*)\{", text)
    return found, tuple(starts)


@of_each(documents(ROOT))
def test_commands_name_files_tools_and_options_that_are_there(path):
    text = path.read_text('utf-8').replace('\\\n', ' ')
    used = []
    for line in re.findall(r'python[\d.]* ((?:tools|configs)/[^`\n]*)', text):
        tool, *rest = line.replace('"', ' ').split()
        assert tool in sources(), line
        used.append((tool, rest))
    typed = '\n'.join(x for language, x in all_blocks(path) if 'bash' in language)
    lines = re.findall(r'^mmrank (.*)', typed.replace('\\\n', ' '), re.MULTILINE)
    for line in (*lines, *re.findall(r'`mmrank ([a-z][^`\n]*)`', text)):
        words = line.split()
        names = [x for x in COMMANDS if x.split()[: len(words)] == words[: len(x.split())]]
        assert names, line
        module = COMMANDS[names[0]][0].replace('.', '/')
        used.append((f'mmrank/cli/{module}.py', words))
    for tool, rest in used:
        options, starts = options_of(tool)
        for word in rest:
            if word.startswith('--'):
                # argparse.BooleanOptionalAction makes --no-x of --x.
                names = {word, word.replace('--no-', '--')}
                assert names & options or (starts and word.startswith(starts)), (tool, word)
    for target in re.findall(r'\bmake ((?:test|docs|demo|env)[\w-]*)', text):
        makefile = (ROOT / 'Makefile').read_text('utf-8')
        assert re.search(rf'^{target}:', makefile, re.MULTILINE), target
    for extra in re.findall(r"'\.\[(\w+)\]'", text):
        assert f'\n{extra} = {{file' in (ROOT / 'pyproject.toml').read_text('utf-8')


@functools.cache
def registered():
    """Names that a config may write after ``mmrank.``."""
    nodes = [getattr(registry, name) for name in registry.__all__]
    for node in nodes:
        node.import_from_location()
    return {name for node in nodes for name in node.module_dict}


def is_there(name):
    """Whether a dotted name is a module, an object in one, or registered."""
    parts = name.split('.')
    if len(parts) == 2 and parts[1] in registered():
        return True
    for number in range(len(parts), 0, -1):
        try:
            found = importlib.import_module('.'.join(parts[:number]))
        except ImportError:
            continue
        with suppress(AttributeError):
            for part in parts[number:]:
                found = getattr(found, part)
            return True
    return False


@of_each([*documents(ROOT), PAGES / 'llms.txt'])
def test_names_and_paths_are_there(path):
    text = path.read_text('utf-8')
    names = {*re.findall(r'(?<![\w./-])mmrank(?:\.[A-Za-z_]\w*)+', text)}
    files = {*re.findall(r'(?<![\w./-])(?:tools|configs|tests)/[\w./-]*\w(?![\w{*<])', text)}
    missing = [name for name in names if not is_there(name)]
    missing += [name for name in files if not (ROOT / name).exists()]
    assert not missing


def test_every_tool_is_listed():
    page = (PAGES / 'tools.md').read_text('utf-8')
    for path in (ROOT / 'tools').rglob('*.*'):
        text = path.suffix in ('.py', '.sh') and path.read_text('utf-8')
        if text and ("__name__ == '__main__'" in text or '#!' in text[:2]):
            assert path.name in page, path


def test_llms_txt_leads_to_pages():
    targets = re.findall(r'\]\(([^)]+)/\)', (PAGES / 'llms.txt').read_text('utf-8'))
    assert len(targets) > 15
    assert all((PAGES / f'{target}.md').is_file() for target in targets)


@pytest.mark.parametrize(('package', 'ending'), [('losses', 'Loss'), ('functional', '_loss')])
def test_index_names_every_loss_and_what_is_there(package, ending):
    index = (PAGES / f'api/{package}.md').read_text('utf-8').partition('\n| ')[2]
    named = set(re.findall(r'`(\w+)`', index))
    public = importlib.import_module(f'mmrank.{package}').__all__
    assert named <= set(public)
    assert {name for name in public if name.endswith(ending)} <= named


def test_every_picture_has_a_command_that_is_there():
    text = (PAGES / 'pictures.md').read_text('utf-8')
    listed = re.findall(r'^\| `([^`]+)` \| .+ \|$', text, re.MULTILINE)
    # results.py draws what the mark above a table names.
    drawn = [
        (block.page.parent / block.options[kind]).resolve().relative_to(ROOT).as_posix()
        for block in blocks_of(documents(ROOT))
        for kind in block.options.keys() & {*PICTURES}
    ]
    kinds = ['*.png', '*.jpg', '*.jpeg', '*.svg', '*.gif']
    done = subprocess.run(['git', 'ls-files', *kinds], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        pytest.skip('not a git repository')
    assert sorted([*listed, *drawn]) == sorted(done.stdout.split())


def test_pages_equal_their_records(monkeypatch, capsys):
    monkeypatch.setattr('sys.argv', ['results.py', '--check'])
    results.main()
    assert 'no tables differ' in capsys.readouterr().out


def test_no_table_of_runs_is_without_a_record():
    """Means with a spread, ``12.3 ± 0.4``, stand in the tables that results.py writes."""
    found = []
    for page in documents(ROOT):
        text = re.sub(r'(?s)<!-- (record|overview).*?<!-- end of', '', page.read_text('utf-8'))
        text = re.sub(r'(?s)```.*?```', '', text)  # what a command prints
        # What paper_table.py --all writes; its seeds are in the plans.
        text = re.sub(r'(?s)\n## What a night makes.*', '', text)
        name = page.relative_to(ROOT).as_posix()
        found += [(name, x) for x in text.splitlines() if x.startswith('|') and ' ± ' in x]
    assert not found


def test_messages_are_read_from_the_source(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / 'docs')
    import messages

    found = {m.text: m for m in messages.all_messages()}
    assert len(found) > 500
    known = found['config file ... does not exist.']
    assert (known.kind, known.path) == ('UserError', 'mmrank/runners/config.py')
    assert known.fix.startswith('pass its path relative to')
    page = messages.as_markdown()
    assert all(f'`{text}`' in page for text in found if '`' not in text)


WALKS = PAGES / 'code_walks.md'
STEP = re.compile(r'^\| \d \| `([\w/]+\.py)` `(\w+)`', re.MULTILINE)


def test_a_step_of_stable_ap():
    shown = WALKS.read_text('utf-8').split('## From a COCO file')[0]
    steps = STEP.findall(shown)
    assert len(steps) == 7
    loss = StableAPLoss(num_classes=80)
    g = torch.Generator().manual_seed(0)
    scores = torch.randn(4000, 80, generator=g, requires_grad=True)
    labels = torch.randint(0, 2000, (4000,), generator=g).clamp(max=80)
    calls = entered(lambda: loss(scores, labels).backward())
    places = [calls.index(step) for step in steps]
    assert places == sorted(places)


def test_functions_of_the_other_way_exist():
    shown = WALKS.read_text('utf-8').split('## From a COCO file')[1]
    steps = STEP.findall(shown)
    assert len(steps) == 7
    for path, name in steps:
        assert re.search(
            rf'^ *def {name}\(', (ROOT / 'mmrank' / path).read_text('utf-8'), re.MULTILINE
        )
