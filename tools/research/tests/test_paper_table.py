"""The list of the papers' tables, and what one command does with it."""

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
from paper_table import RUNNABLE, STATES, TABLES

ROOT = Path(__file__).parents[3]
TOOL = ROOT / 'tools/research/paper_table.py'
PAGE = 'docs/pages/results/papers.md'
#: Numbers of tables and figures that each paper prints.
PRINTED = {
    'stable_ap': (6, [1, 3, 4, 5, 6, 7, 8]),
    'soprc': (8, range(1, 8)),
    'isogclr': (10, range(1, 12)),
    'in_batch': (6, range(1, 5)),
}
COMMANDS = {command for x in TABLES.values() for command in x.commands if '-m ' not in command}


def test_every_table_and_figure_is_named_once():
    expected = ['in_batch/appendixF1']  # in the text alone
    for paper, (tables, figures) in PRINTED.items():
        expected += [f'{paper}/table{i}' for i in range(1, tables + 1)]
        expected += [f'{paper}/figure{i}' for i in figures]
    assert sorted(x for x in TABLES if '@' not in x) == sorted(expected)
    # A further way to make a table is one of a table that there is.
    assert {x.partition('@')[0] for x in TABLES} == {*expected}


@pytest.mark.parametrize('entry', TABLES.values(), ids=lambda x: x.name)
def test_what_an_entry_names_is_there(entry):
    assert entry.state in STATES
    assert bool(entry.commands) == (entry.state in (*RUNNABLE, 'data'))
    assert bool(entry.needs) or entry.state != 'data'
    assert bool(entry.results) == (entry.state in ('here', 'small'))
    assert not entry.results or (ROOT / entry.results).is_file()
    # Where a GPU is needed it says for how long.
    assert entry.trainings or entry.state != 'data' or 'no GPU' in entry.note
    hours = [float(re.search(r': (\S+) h$', training)[1]) for training in entry.trainings]
    assert sum(hours) == pytest.approx(entry.gpu_hours, rel=0.06)
    found = re.findall(
        r'(?:tools|configs|tests)/[\w./@-]+\.\w+', ' '.join([*entry.commands, entry.note])
    )
    assert found or not entry.commands
    assert all((ROOT / path).is_file() for path in found)


def test_page_has_what_was_run_and_nothing_else():
    rows = re.findall(r'^\| `(\w+/[\w@]+)` \| .*\d.* \|$', (ROOT / PAGE).read_text('utf-8'), re.M)
    assert sorted(rows) == sorted(x.name for x in TABLES.values() if x.results == PAGE)


class Parsed(Exception):
    """The command line was accepted."""


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
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, 'parse_args', parse_args)
    with pytest.raises(Parsed):
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
        ('--list', 0, 0, 'left out'),
        ('soprc/figure5 -- --trials 3', 0, 1, 'status 0'),
        ('stable_ap/table3 -- --fail', 7, 1, 'status 7'),
        ('stable_ap/table3', 0, 2, 'command 2 of 2'),
        ('soprc/table3', 3, 0, '33 GPU hours, an estimate'),
        ('soprc/figure5 --explain', 0, 0, 'command: python tools/research/soprc_simulation.py'),
        ('soprc/table99', 2, 0, 'Fix: a name that --list shows'),
    ],
)
def test_tool(run_script, calls, words, status, number, said):
    found, text, error = run_script(TOOL, *words.split())
    assert (found, len(calls)) == (status, number)
    assert said in text + error
    assert not calls or calls[0][-2:] == ['--trials', '3'] or '--trials' not in words


def test_a_star_is_the_file_that_there_is(tmp_path, monkeypatch):
    monkeypatch.setattr(paper_table, 'ROOT', tmp_path)
    (tmp_path / 'seed_0-ab').mkdir()
    (tmp_path / 'seed_0-ab/iter_9.pth').touch()
    word = 'name=a.py,./seed_0-*/iter_*.pth'
    assert paper_table.expand(word) == 'name=a.py,./seed_0-ab/iter_9.pth'
    (tmp_path / 'seed_0-ab/iter_10.pth').touch()
    with pytest.raises(UserError, match='matches 2 files'):
        paper_table.expand(word)
