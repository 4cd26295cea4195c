"""A plan names its trainings, and goes on where its record ends."""

import pytest
from training_plan import Record, TrainingPlan

from mmrank.errors import UserError
from mmrank.experiments.records import read_rows, write_rows

PLAN = """
seeds: [3, 4]
data: {left: {size: 1}, right: {size: 2}}
common: {rate: 0.1}
methods:
- {name: a, loss: {type: X}}
- {name: b, rate: 0.2, seeds: 1}
- {name: c, sets: [right]}
"""


@pytest.fixture
def read_plan(tmp_path):
    """Reads a plan of some text."""

    def read(text):
        (tmp_path / 'plan.yaml').write_text(text)
        return TrainingPlan(tmp_path / 'plan.yaml')

    return read


def test_a_plan_names_its_trainings_and_goes_on_where_it_was(tmp_path, read_plan):
    plan = read_plan(PLAN)
    columns = ('method', 'seed', 'commit', 'mAP')
    record = Record(tmp_path / 'deep' / 'left.csv', columns)
    right = [*plan.missing('right', Record(tmp_path / 'right.csv', columns))]
    assert [(x['stage'], x['seed'], x['method']) for x, _ in right] == [
        ('final', seed, name) for seed, name in zip((3, 3, 3, 4, 4), 'abcac')
    ]
    assert [x['settings'] for x, _ in right[:2]] == ['{"loss": {"type": "X"}}', '{"rate": 0.2}']
    assert [method['rate'] for _, method in right[:3]] == [0.1, 0.2, 0.1]
    record.add([dict(method='a', seed=3, mAP=0.5, more='is left out')])
    for found in (record, Record(record.path, columns)):
        left = [(x['seed'], x['method']) for x, _ in plan.missing('left', found)]
        assert left == [(3, 'b'), (4, 'a')]
        assert found.rows[0]['mAP'] == '0.5'
    with pytest.raises(UserError, match='second time'):
        record.add([dict(method='a', seed=3, mAP=0.6)])
    with pytest.raises(UserError, match='other columns'):
        Record(record.path, ('method', 'seed'))


TUNED = """
seeds: [3, 4]
data: x
tune: {seeds: [1, 2], grid: {rate: [0.1, 0.3]}}
methods:
- {name: a, loss: {type: X}}
- {name: b, tune: {loss: [{type: Y}, {type: Z}], rate: [0.2]}}
"""
COLUMNS = ('stage', 'method', 'seed', 'step', 'commit', 'settings', 'mAP')


def train_all(plan, record):
    """Train what is missing, the better the larger the rate is; what was trained."""
    done = []
    for facts, method in plan.missing('plan', record, 'mAP'):
        stage, name, seed, _ = facts.values()
        mean = method['rate'] + (method['loss']['type'] == 'Z') - 0.01 * seed
        # What a training has on its way decides nothing.
        record.add(
            [dict(facts, step=step, mAP=value) for step, value in ((1, 9 - mean), (2, mean))]
        )
        done.append((stage, seed, name, method['rate'], method['loss']['type']))
    return done


def test_the_best_trial_is_trained_on_the_other_seeds(tmp_path, read_plan):
    record = Record(tmp_path / 'x.csv', COLUMNS)
    done = train_all(read_plan(TUNED), record)
    trials = [('a', 0.1, 'X'), ('a', 0.3, 'X'), ('b', 0.2, 'Y'), ('b', 0.2, 'Z')]
    assert done[:8] == [('tune', seed, *trial) for seed in (1, 2) for trial in trials]
    best = [('a', 0.3, 'X'), ('b', 0.2, 'Z')]
    assert done[8:] == [('final', seed, *trial) for seed in (3, 4) for trial in best]
    assert not train_all(read_plan(TUNED), Record(tmp_path / 'x.csv', COLUMNS))
    more = train_all(read_plan(TUNED.replace('[3, 4]', '[3, 4, 5]')), record)
    assert more == [('final', 5, *trial) for trial in best]
    only_trials = read_plan(TUNED.replace('seeds: [3, 4]', ''))
    assert train_all(only_trials, Record(tmp_path / 'y.csv', COLUMNS)) == done[:8]


def test_a_record_without_stages_keeps_no_trial(tmp_path, read_plan):
    """As it was written before trials were: what its final rows were trained with still counts."""
    path = tmp_path / 'x.csv'
    first = dict(method='a', seed=3, step=10, settings='{"rate": 0.1}', mAP=0.5, commit='')
    write_rows(path, [first], first)
    record = Record(path, ('stage', *first))
    plan = read_plan(TUNED)
    for facts, method in plan.missing('plan', record, 'mAP'):
        record.add([dict(facts, step=10, mAP=method['rate'])])
    rows = read_rows(path)
    assert [(x['method'], x['seed']) for x in rows] == [
        *(('a', '3'), ('b', '3'), ('a', '4'), ('b', '4'))
    ]
    assert all('0.1' in x['settings'] for x in rows if x['method'] == 'a')


def test_a_choice_without_a_trial_is_refused(tmp_path, read_plan):
    plan = read_plan(TUNED.replace('seeds: [1, 2], ', ''))
    with pytest.raises(UserError, match="'a' was not tried with {'rate': 0.1}. Fix: seeds of tune"):
        next(plan.missing('plan', Record(tmp_path / 'x.csv', COLUMNS), 'mAP'))


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('seeds: [0]', 'has no data. Fix'),
        ('{data: x, methods: [{name: a}]}', 'has no seeds. Fix'),
        ('{seeds: [0], data: x, methods: [{name: a}, {name: a}]}', 'name of its own for each'),
        ('{seeds: [0], data: x, methods: [{loss: a}]}', 'name of its own for each'),
        ('{seeds: [0', 'cannot be read'),
    ],
)
def test_a_faulty_plan_is_named(read_plan, text, message):
    with pytest.raises(UserError, match=message):
        read_plan(text)
