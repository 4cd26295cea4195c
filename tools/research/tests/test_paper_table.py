"""The list of the papers' tables, and what one command does with it."""

import argparse
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from mmrank.errors import UserError
from papers import report, tables
from papers.tables import DATA, TABLES
from plans.config_plan import read_plan

ROOT = Path(__file__).parents[3]
TOOL = ROOT / 'tools/research/paper_table.py'
#: Numbers of tables and figures that each paper prints.
PRINTED = {
    'stable_ap': (6, [1, 3, 4, 5, 6, 7, 8]),
    'soprc': (8, range(1, 8)),
    'isogclr': (10, range(1, 12)),
    'in_batch': (6, range(1, 5)),
}
COMMANDS = {
    re.sub(r'{files.*?}', 'config.py last.pth', step)
    for x in TABLES.values()
    for step in x.commands
    if '-m ' not in step
}
PLANS = sorted({x.plan for x in TABLES.values()} - {''})


def test_every_table_and_figure_is_named_once():
    expected = ['in_batch/appendixF1', 'isogclr/appendixC3']  # in the text alone
    for paper, (numbers, figures) in PRINTED.items():
        expected += [f'{paper}/table{i}' for i in range(1, numbers + 1)]
        expected += [f'{paper}/figure{i}' for i in figures]
    assert sorted(x for x in TABLES if '@' not in x) == sorted(expected)
    # A further way to make a table is one of a table that there is.
    assert {x.partition('@')[0] for x in TABLES} == {*expected}


@pytest.mark.parametrize('entry', TABLES.values(), ids=lambda x: x.name)
def test_what_an_entry_names_is_there(entry):
    sets = [*entry.small, *entry.published]
    assert bool(sets) == entry.shows_results
    assert all(name in DATA for data in entry.data.values() for name in data)
    assert not entry.results or (ROOT / entry.results).is_file()
    assert all(hours > 0 for hours in entry.gpu_hours.values())
    if entry.plan:
        known = yaml.safe_load((ROOT / entry.plan).read_text('utf-8'))['sets']
        assert {*sets} <= {*known}
        # A set is small, or it is published.
        assert all(name.startswith('small') for name in entry.small)
        assert not any(name.startswith('small') for name in entry.published)


@pytest.mark.parametrize('path', PLANS)
def test_every_set_of_a_plan_is_used(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    entries = [x for x in TABLES.values() if x.plan == path]
    known = yaml.safe_load(Path(path).read_text('utf-8'))
    assert {name for x in entries for name in (*x.small, *x.published)} == {*known['sets']}
    assert all({*x.data} == {*x.small, *x.published} for x in entries)
    for name in known['sets']:
        plan = read_plan(path, name)
        names = {method.name for method in plan.methods}
        assert {*plan.printed} <= names
        assert all(len(row) <= len(plan.metrics) for row in plan.printed.values())


@pytest.mark.parametrize('command', sorted(COMMANDS))
def test_every_command_parses(command, monkeypatch):
    """Its own parser takes it; nothing is imported by then but the tool."""
    script, *words = shlex.split(command)
    monkeypatch.setattr(sys, 'argv', [script, *words])
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str((ROOT / script).parent))
    parse = argparse.ArgumentParser.parse_args

    def parse_args(self, *args, **kwargs):
        parse(self, *args, **kwargs)
        raise StopIteration('it was parsed')

    monkeypatch.setattr(argparse.ArgumentParser, 'parse_args', parse_args)
    with pytest.raises(StopIteration, match='it was parsed'):
        runpy.run_path(str(ROOT / script), run_name='__main__')


@pytest.fixture
def calls(monkeypatch):
    """Commands that the tool starts, and the status of each."""
    found = []

    def run(command, **kwargs):
        found.append(command)
        return subprocess.CompletedProcess(command, 7 if '--fail' in command else 0)

    monkeypatch.setattr(subprocess, 'run', run)
    return found


@pytest.mark.parametrize(
    ('words', 'status', 'number', 'said'),
    [
        ('--list', 0, 0, 'GPU h'),
        ('soprc/figure5 -- --trials 3', 0, 1, 'status 0'),
        ('stable_ap/table3 -- --fail', 7, 1, 'status 7'),
        ('stable_ap/table3', 0, 1, 'training_step.py'),
        ('soprc/table3 --size published', 3, 0, '33 GPU hours, an estimate'),
        ('soprc/table3 --size published', 3, 0, 'data/Stanford_Online_Products (from cvgl'),
        ('soprc/figure5 --explain', 0, 0, 'python tools/research/soprc_simulation.py'),
        ('in_batch/figure1', 0, 0, 'shows no result'),
        ('soprc/table99', 2, 0, 'Fix: a name that --list shows'),
    ],
)
def test_tool(run_script, calls, words, status, number, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found, text, error = run_script(TOOL, *words.split())
    assert (found, len(calls)) == (status, number)
    assert said in text + error
    assert not calls or calls[0][-2:] == ['--trials', '3'] or '--trials' not in words


def test_a_table_has_what_the_paper_prints(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, 'ROOT', tmp_path)
    plan = {
        'out_dir': 'out',
        'metrics': ['retrieval/mAP'],
        'scale': 100,
        'seeds': [0, 1],
        'methods': ['x/a.py', 'x/b.py'],
        'sets': {
            'small': {},
            'sop': {'printed': {'b': [41.25]}},
            'cars': {'printed': {'a': [7.5]}},
        },
    }
    (tmp_path / 'plan.yaml').write_text(yaml.safe_dump(plan))
    for name in ('small', 'sop'):
        folder = tmp_path / 'out' / name
        folder.mkdir(parents=True)
        lines = ['final,a,0,2,0.25', 'final,a,1,2,0.35', 'tune,a,0,2,0.9', 'final,b,0,2,0.5']
        text = '\n'.join(['stage,method,seed,seconds,retrieval/mAP', *lines, ''])
        (folder / 'runs.csv').write_text(text)
    entry = tables.PaperTable('x/table1', 'x', 'plan.yaml', published=['sop', 'cars'])
    lines = tables.table_of(entry, ['small', 'sop']).splitlines()
    assert [x.strip() for x in lines[2].split('|')[1:-1]] == ['a', '30 ± 7.1', '30 ± 7.1', '(7.5)']
    assert '50 (41.25)' in lines[3]
    # Its seconds are those of its trainings and commands, whenever they ran.
    monkeypatch.setattr(report, 'ROOT', tmp_path)
    assert report.seconds_of(entry, {'seconds': 3, 'sets': ['small']}) == 11


def test_steps_name_models_and_what_is_made_first(tmp_path, monkeypatch):
    monkeypatch.setitem(DATA, 'sorter', {'path': str(tmp_path / 'x'), 'made_by': 'make x'})
    plan = {'out_dir': 'out', 'metrics': ['x'], 'seeds': [3, 4], 'sets': {'small': {}}}
    plan['methods'] = ['x/a.py', 'x/b.py']
    (tmp_path / 'plan.yaml').write_text(yaml.safe_dump(plan))
    entry = tables.PaperTable(
        'x/table1',
        'x',
        str(tmp_path / 'plan.yaml'),
        small=['small'],
        commands=['one {model[b]} {files[b]}', 'all {models} {run[a]} {runs} {set}'],
    )
    assert tables.makers_of(['sorter']) == ['make x']
    assert not tables.missing(['sorter'])
    run = [f'out/small/final/{x}/seed_3-*' for x in 'ab']
    model = [f'{x}={folder}/*.py,{folder}/*.pth' for x, folder in zip('ab', run)]
    assert [*tables.steps_of(entry, 'small', 'small')][1:] == [
        f'one {model[1]} {run[1]}/*.py {run[1]}/*.pth',
        f'all {model[0]} {model[1]} {run[0]} a={run[0]} b={run[1]} small',
    ]
    (tmp_path / 'x').touch()
    assert not tables.makers_of(['sorter'])


def test_all_are_made_and_reported(run_script, calls, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = []

    def make(entry, size, *_):
        sizes.append(size)
        return {'status': {'soprc/table3': 3, 'soprc/figure5': 7}.get(entry.name, 0)}

    monkeypatch.setattr(report, 'make', make)
    assert run_script(TOOL, '--all', '--size', 'published')[0] == 7
    assert sizes == ['published'] * len(TABLES)
    text = (tmp_path / 'work_dirs/papers/published/report.md').read_text('utf-8')
    assert all(name in text for name in TABLES)


def test_a_star_is_the_file_that_there_is(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, 'ROOT', tmp_path)
    (tmp_path / 'seed_0-ab').mkdir()
    for name in ('a.py', 'iter_9.pth'):
        (tmp_path / 'seed_0-ab' / name).touch()
    word = 'name=./seed_0-*/*.py,./seed_0-*/iter_*.pth'
    assert tables.expand(word) == 'name=./seed_0-ab/a.py,./seed_0-ab/iter_9.pth'
    assert tables.expand('*loss*') == '*loss*'
    (tmp_path / 'seed_0-ab/iter_10.pth').touch()
    with pytest.raises(UserError, match='matches 2 files'):
        tables.expand(word)
