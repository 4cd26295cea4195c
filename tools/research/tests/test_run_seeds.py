"""The command of plans of whole configs, on a training that is over in a moment."""

import io
import json

import pytest
from fake_training import write_training
from rich.console import Console

import run_seeds


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Call the command with the fake training; give status and output."""
    monkeypatch.setattr('mmrank.experiments.runs.POLL_SECONDS', 0.01)
    monkeypatch.setattr('mmrank.experiments.runs.SCRIPT', (str(write_training(tmp_path)),))
    for name in 'ab':
        (tmp_path / f'{name}.py').write_text(
            "val_dataloader = dict(dataset=dict(ann_file='val'))\n"
            "test_dataloader = dict(dataset=dict(ann_file='test'))\n"
        )
    plan = {
        'methods': [str(tmp_path / f'{name}.py') for name in 'ab'],
        'out_dir': str(tmp_path / 'out'),
        'seeds': [0, 1, 2],
        'metrics': ['acc'],
    }

    def run(*arguments, **changes):
        console = Console(file=io.StringIO(), width=200)
        file = tmp_path / 'plan.yaml'
        file.write_text(json.dumps(plan | changes))
        args = run_seeds.parse_args(['--plan', str(file), *arguments])
        return run_seeds.run(args, console), console.file.getvalue()

    return run


def test_tuning_comes_before_fresh_seeds(call, tmp_path):
    tune = {'grid': {'lr': [0.1, 0.2, 0.4]}, 'seeds': [8, 9]}
    status, output = call(tune=tune)
    assert status == 0
    assert "tuned a: {'lr': '0.2'}" in output
    assert "tuned b: {'lr': '0.2'}" in output
    runs = (tmp_path / 'out' / 'runs.csv').read_text()
    assert runs.count('tune,') == 12
    assert runs.count('final,') == 6
    report = (tmp_path / 'out' / 'report.md').read_text()
    assert '| a | lr=0.2 | 2 | 0.3085 | chosen |' in report


def test_failure_is_reported_and_tried_again(call, tmp_path):
    status, output = call(cfg_options={'fail': 1})
    assert status == 1
    assert 'something broke' in output
    assert output.count('done in') == 4
    report = (tmp_path / 'out' / 'report.md').read_text()
    assert '- final a seed 1:' in report
    status, output = call(cfg_options={'fail': 1})
    assert status == 1
    assert 'done in' not in output


def test_a_value_that_fails_is_not_chosen(call, tmp_path):
    status, output = call(tune={'grid': {'fail': [8, 'none']}, 'seeds': [8]})
    assert status == 0
    assert 'failed tune a fail=8 seed 8' in output
    assert "tuned a: {'fail': 'none'}" in output
    assert '- tune a fail=8 seed 8:' in (tmp_path / 'out' / 'report.md').read_text()
    status, output = call(tune={'grid': {'fail': [8]}, 'seeds': [8]})
    assert status == 1
    assert 'finished all tuning seeds' in output.replace('\n', ' ')


def test_report_only_trains_nothing(call, tmp_path):
    with pytest.raises(ValueError, match='`retries` is -1'):
        call('--retries', '-1')
    call()
    status, output = call('--report-only', scale=100)
    assert status == 0
    assert 'started' not in output
    assert '60.13 ± 0.12' in (tmp_path / 'out' / 'report.md').read_text()
