"""A plan names its trainings, and goes on where its record ends."""

import pytest
import yaml

from mmrank.errors import UserError
from mmrank.experiments.records import read_rows, write_rows
from plans.study_plan import Record, StudyPlan

PLAN = """
study: x
seeds: [3, 4]
rate: 0.1
sets_of: known.yaml
sets: {left: {size: 1}, right: {like: wide, leave_out: [d-2]}}
methods:
- {name: a, loss: {type: X}}
- {name: b, rate: 0.2, seeds: 1}
- {name: c, sets: [right]}
- {name: 'd-{}', sets: [right], loss: {type: X}, each: {loss.tau: [1, 2]}, seeds: 1}
"""
KNOWN = 'wide: {size: 2, shape: [4, 8]}\nleft: {size: 3, shape: [4, 4]}\n'


def read_plan(text, *where):
    return StudyPlan(yaml.safe_load(text), *where)


def test_a_plan_names_its_trainings_and_goes_on_where_it_was(tmp_path):
    (tmp_path / 'known.yaml').write_text(KNOWN)
    plan = read_plan(PLAN, 'left', tmp_path)
    other = read_plan(PLAN, 'right', tmp_path)
    columns = ('method', 'seed', 'commit', 'mAP')
    record = Record(tmp_path / 'deep' / 'left.csv', columns)
    right = [*other.missing(Record(tmp_path / 'right.csv', columns))]
    assert [(x['stage'], x['seed'], x['method']) for x, _ in right] == [
        ('final', seed, name)
        for seed, name in zip((3, 3, 3, 3, 4, 4), ('a', 'b', 'c', 'd-1', *'ac'))
    ]
    assert [x['settings'] for x, _ in right[:2]] == ['{"loss": {"type": "X"}}', '{"rate": 0.2}']
    assert [settings['rate'] for _, settings in right[:3]] == [0.1, 0.2, 0.1]
    assert right[3][1]['loss'] == {'type': 'X', 'tau': 1}
    assert (right[0][1]['size'], right[0][1]['shape']) == (2, [4, 8])
    assert (plan.fields['size'], plan.fields['shape']) == (1, [4, 4])
    record.add([dict(method='a', seed=3, mAP=0.5, more='is left out')])
    for found in (record, Record(record.path, columns)):
        left = [(x['seed'], x['method']) for x, _ in plan.missing(found)]
        assert left == [(3, 'b'), (4, 'a')]
        assert found.rows[0]['mAP'] == '0.5'
    with pytest.raises(UserError, match='second time'):
        record.add([dict(method='a', seed=3, mAP=0.6)])
    with pytest.raises(UserError, match='other columns'):
        Record(record.path, ('method', 'seed'))


TUNED = """
study: x
seeds: [3, 4]
tune: {seeds: [1, 2], grid: {rate: [0.1, 0.3]}}
methods:
- {name: a, loss: {type: X}}
- {name: b, tune: {loss: [{type: Y}, {type: Z}], rate: [0.2]}}
"""
COLUMNS = ('stage', 'method', 'seed', 'step', 'commit', 'settings', 'mAP')


def train_all(plan, record):
    """Train what is missing, the better the larger the rate is; what was trained."""
    done = []
    for facts, method in plan.missing(record, 'mAP'):
        stage, name, seed, _ = facts.values()
        mean = method['rate'] + (method['loss']['type'] == 'Z') - 0.01 * seed
        # What a training has on its way decides nothing.
        record.add(
            [dict(facts, step=step, mAP=value) for step, value in ((1, 9 - mean), (2, mean))]
        )
        done.append((stage, seed, name, method['rate'], method['loss']['type']))
    return done


def test_the_best_trial_is_trained_on_the_other_seeds(tmp_path):
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


def test_a_record_without_stages_keeps_no_trial(tmp_path):
    """As it was written before trials were: what its final rows were trained with still counts."""
    path = tmp_path / 'x.csv'
    first = dict(method='a', seed=3, step=10, settings='{"rate": 0.1}', mAP=0.5, commit='')
    write_rows(path, [first], first)
    record = Record(path, ('stage', *first))
    plan = read_plan(TUNED)
    for facts, method in plan.missing(record, 'mAP'):
        record.add([dict(facts, step=10, mAP=method['rate'])])
    rows = read_rows(path)
    assert [(x['method'], x['seed']) for x in rows] == [
        *(('a', '3'), ('b', '3'), ('a', '4'), ('b', '4'))
    ]
    assert all('0.1' in x['settings'] for x in rows if x['method'] == 'a')


def test_what_a_method_does_not_tune_is_left_out():
    plan = read_plan(TUNED.replace('rate: [0.2]', 'rate: null'))
    assert [[*method.grid] for method in plan._methods] == [['rate'], ['loss']]


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('methods: [{name: a}]', '`seeds: []`'),
        ('{seeds: [0], methods: [{loss: a}]}', 'name of its own for each'),
        ('{seeds: [0], methods: [{name: a, seeds: 0}]}', '`a.seeds` is 0'),
    ],
)
def test_a_faulty_plan_is_named(text, message):
    with pytest.raises(UserError, match='Fix: ') as caught:
        read_plan(text)
    assert message in str(caught.value)
