"""The list of the papers' tables, and what one command does with them."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from mmrank.studies.paper_tables import STATES, TABLES

ROOT = Path(__file__).parents[2]
TOOL = ROOT / 'tools/benchmarks/paper_table.py'
#: Numbers of tables and figures that each paper prints.
PRINTED = {
    'stable_ap': (6, [1, 3, 4, 5, 6, 7, 8]),
    'soprc': (8, range(1, 8)),
    'isogclr': (10, range(1, 12)),
    'in_batch': (6, range(1, 5)),
}


def test_every_table_and_figure_is_named_once():
    expected = []
    for paper, (tables, figures) in PRINTED.items():
        expected += [f'{paper}/table{i}' for i in range(1, tables + 1)]
        expected += [f'{paper}/figure{i}' for i in figures]
    assert sorted(x.name for x in TABLES) == sorted(expected)
    assert sum(x.state in ('here', 'small') for x in TABLES) >= 10


@pytest.mark.parametrize('entry', TABLES, ids=lambda x: x.name)
def test_what_an_entry_names_is_there(entry):
    assert entry.state in STATES
    assert bool(entry.command) == (entry.state in ('here', 'small', 'data'))
    assert bool(entry.needs) or entry.state != 'data'
    words = [x for x in shlex.split(entry.command) if '/' in x]
    found = re.findall(
        r'(?:tools|configs)/[\w./-]+\.(?:py|yaml|md)', entry.note
    )
    for path in [*words, *found]:
        assert (ROOT / path).is_file(), path


def test_tool_lists_runs_and_explains(run_script, monkeypatch):
    status, text, _ = run_script(TOOL, '--list')
    assert status == 0
    assert 'left out' in text
    calls = []

    def run(command, **kwargs):
        calls.append(command)
        return subprocess.CompletedProcess(command, 7)

    monkeypatch.setattr(subprocess, 'run', run)
    status, text, _ = run_script(TOOL, 'soprc/figure5', '--', '--trials', '3')
    assert status == 7
    assert calls[0][1:] == [
        'tools/analysis_tools/soprc_simulation.py', '--trials', '3'
    ]  # fmt: skip
    status, text, _ = run_script(TOOL, 'soprc/table3')
    assert (status, len(calls)) == (3, 1)
    assert 'needs: Stanford Online Products' in text
    status, _, error = run_script(TOOL, 'soprc/table99')
    assert status == 2
    assert 'Fix: a name that --list shows' in error
