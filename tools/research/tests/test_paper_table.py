"""The list of the papers' tables, and what one command does with them."""

import argparse
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import paper_table
from mmrank.errors import UserError
from paper_tables import PAGE, RUN, RUNNABLE, STATES, TABLES

ROOT = Path(__file__).parents[3]
TOOL = ROOT / 'tools/research/paper_table.py'
#: Numbers of tables and figures that each paper prints.
PRINTED = {
    'stable_ap': (6, [1, 3, 4, 5, 6, 7, 8]),
    'soprc': (8, range(1, 8)),
    'isogclr': (10, range(1, 12)),
    'in_batch': (6, range(1, 5)),
}
#: What a paper reports in its text alone.
IN_THE_TEXT = ['in_batch/appendixF1']
COMMANDS = sorted(
    {command for entry in TABLES for command in entry.commands if not command.startswith('-m ')}
)


def test_every_table_and_figure_is_named_once():
    expected = [*IN_THE_TEXT]
    for paper, (tables, figures) in PRINTED.items():
        expected += [f'{paper}/table{i}' for i in range(1, tables + 1)]
        expected += [f'{paper}/figure{i}' for i in figures]
    names = [x.name for x in TABLES]
    assert sorted(x for x in names if '@' not in x) == sorted(expected)
    assert len(set(names)) == len(names)
    # A further way to make a table is one of a table that there is.
    assert {x.partition('@')[0] for x in names} == set(expected)
    assert sum(x.state in RUN for x in TABLES) >= 10


@pytest.mark.parametrize('entry', TABLES, ids=lambda x: x.name)
def test_what_an_entry_names_is_there(entry):
    assert entry.state in STATES
    assert bool(entry.commands) == (entry.state in (*RUNNABLE, 'data'))
    assert bool(entry.needs) or entry.state != 'data'
    assert bool(entry.results) == (entry.state in RUN)
    if entry.results:
        assert (ROOT / entry.results).is_file()
    # Where a GPU is needed it says for how long.
    assert entry.trainings or entry.state != 'data' or 'no GPU' in entry.note
    words = ' '.join([*entry.commands, entry.note])
    found = re.findall(r'(?:tools|configs|tests)/[\w./@-]+\.\w+', words)
    for path in found:
        assert (ROOT / path).is_file(), path
    assert found or not entry.commands


def test_page_has_what_was_run_and_nothing_else():
    text = (ROOT / PAGE).read_text('utf-8')
    rows = re.findall(r'^\| `(\w+/[\w@]+)` \| (.*) \|$', text, re.M)
    run = [x.name for x in TABLES if x.results == PAGE]
    assert sorted(name for name, _ in rows) == sorted(run)
    for name, rest in rows:
        cells = [x.strip() for x in rest.split(' | ')]
        assert all(cells), name
        assert re.search(r'\d', cells[-1]), f'{name} has no figure'


class Parsed(Exception):
    """The command line was accepted."""


@pytest.mark.parametrize('command', COMMANDS)
def test_every_command_parses(command, monkeypatch):
    """Its own parser takes it; nothing is imported by then but the tool."""
    script, *words = shlex.split(command)
    path = ROOT / script
    monkeypatch.setattr(sys, 'argv', [script, *words])
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(path.parent))
    parse = argparse.ArgumentParser.parse_args

    def parse_args(self, *args, **kwargs):
        parse(self, *args, **kwargs)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, 'parse_args', parse_args)
    with pytest.raises(Parsed):
        runpy.run_path(str(path), run_name='__main__')


@pytest.fixture
def calls(monkeypatch):
    """Commands that the tool starts; the status of each is 0."""
    found = []

    def run(command, **kwargs):
        found.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, 'run', run)
    return found


def test_tool_lists(run_script):
    status, text, _ = run_script(TOOL, '--list')
    assert status == 0
    assert 'left out' in text
    assert 'estimate' in text


def test_tool_runs_all_commands_of_a_table(run_script, calls):
    status, _, _ = run_script(TOOL, 'soprc/figure5', '--', '--trials', '3')
    assert status == 0
    assert calls[0][1] == 'tools/research/soprc_simulation.py'
    assert calls[0][-2:] == ['--trials', '3']
    status, _, _ = run_script(TOOL, 'stable_ap/table3', '--', '--repeats', '1')
    assert status == 0
    assert len(calls) == 3
    assert '--repeats' not in calls[2] or calls[2][-1] != '1'


def test_tool_stops_at_the_command_that_fails(run_script, monkeypatch):
    calls = []

    def run(command, **kwargs):
        calls.append(command)
        return subprocess.CompletedProcess(command, 7)

    monkeypatch.setattr(subprocess, 'run', run)
    status, text, _ = run_script(TOOL, 'stable_ap/table3')
    assert (status, len(calls)) == (7, 1)
    assert 'status 7' in text


def test_tool_explains(run_script, calls):
    status, text, _ = run_script(TOOL, 'soprc/table3')
    assert (status, len(calls)) == (3, 0)
    assert 'needs: Stanford Online Products' in text
    assert '33 GPU hours, an estimate' in text
    status, text, _ = run_script(TOOL, 'soprc/figure5', '--explain')
    assert (status, len(calls)) == (0, 0)
    assert 'command: python tools/research/soprc_simulation.py' in text
    status, _, error = run_script(TOOL, 'soprc/table99')
    assert status == 2
    assert 'Fix: a name that --list shows' in error


def test_a_star_is_the_file_that_there_is(tmp_path, monkeypatch):
    monkeypatch.setattr(paper_table, 'ROOT', tmp_path)
    (tmp_path / 'seed_0-ab').mkdir()
    (tmp_path / 'seed_0-ab/iter_9.pth').touch()
    word = 'name=a.py,./seed_0-*/iter_*.pth'
    assert paper_table.expand(word) == 'name=a.py,./seed_0-ab/iter_9.pth'
    assert paper_table.expand('retrieval/mAP') == 'retrieval/mAP'
    (tmp_path / 'seed_0-cd').mkdir()
    (tmp_path / 'seed_0-cd/iter_9.pth').touch()
    with pytest.raises(UserError, match='matches 2 files'):
        paper_table.expand(word)
