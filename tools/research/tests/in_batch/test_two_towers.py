"""The comparison of two-tower losses leaves a record that it goes on from."""

import csv
import sys

from lib.synthetic.interactions import InteractionsSpec, write_interactions
from research import two_towers


def test_record_is_tuned_alike_and_gone_on_with(tmp_path, monkeypatch):
    write_interactions(tmp_path, InteractionsSpec(40, 30, per_user=8))
    record = tmp_path / 'two_towers.csv'
    methods = ['softmax, refined logQ, mixed', 'sogram, square']
    monkeypatch.setitem(two_towers.METHODS, methods[0], (two_towers.COUNTS, 8))

    def run(*seeds):
        words = f'{tmp_path} {tmp_path} --batch-size 12 --steps 2 --learning-rates 0.5 0.25 --seeds'
        arguments = [*words.split(), *seeds, '--methods', *methods]
        monkeypatch.setattr(sys, 'argv', ['two_towers.py', *arguments])
        two_towers.main()
        return list(csv.DictReader(record.read_text().splitlines()))

    first = run('0')
    assert [(row['stage'], row['method']) for row in first] == [
        (stage, method) for method in methods for stage in ('tune', 'tune', 'final')
    ]
    assert all(0 <= float(row[metric]) <= 1 for row in first for metric in two_towers.METRICS)
    again = run('0', '1')
    assert again[: len(first)] == first
    assert [row['seed'] for row in again[len(first) :]] == ['1', '1']
