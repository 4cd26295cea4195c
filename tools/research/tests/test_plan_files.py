"""Plans of comparisons and of studies: what is run, what is refused, where they go on."""

import math
import os

import pytest
import yaml

from mmrank.errors import UserError
from mmrank.experiments.records import read_rows, write_rows
from mmrank.experiments.runs import Outcome
from plans.config_plan import check_splits, choose, parse_plan, read_plan
from plans.study_plan import Record, missing, read_study

LR = 'optim_wrapper.optimizer.lr'


@pytest.fixture
def config(tmp_path):
    """A config with validation and test data of their own."""
    path = tmp_path / 'base.py'
    path.write_text(
        "val_dataloader = dict(dataset=dict(ann_file='val.json'))\n"
        "test_dataloader = dict(dataset=dict(ann_file='test.json'))\n"
    )
    return path


@pytest.fixture
def content(config, tmp_path):
    """The content of a plan file: two methods, one grid."""
    return {
        'out_dir': str(tmp_path / 'out'),
        'seeds': [0, 1, 2],
        'metrics': ['acc', 'time'],
        'methods': [
            {'name': 'a', 'config': str(config)},
            {
                'name': 'b',
                'config': str(config),
                'cfg_options': {'model.sizes': [1, 2]},
                'tune': {LR: ['1e-4', 0.1, 1]},
            },
        ],
        'tune': {'seeds': [10, 11]},
    }


def test_runs_of_a_plan(content):
    plan = parse_plan(content)
    assert plan.baseline == 'a'
    tuning = plan.tuning_runs()
    assert len(tuning) == 6
    assert {run.method for run in tuning} == {'b'}
    assert {run.seed for run in tuning} == {10, 11}
    assert {run.split for run in tuning} == {'val'}
    assert {run.options[LR] for run in tuning} == {'1e-4', '0.1', '1'}
    assert all(run.options['model.sizes'] == '[1,2]' for run in tuning)

    assert [run.method for run in plan.final_runs()] == ['a'] * 3
    final = plan.final_runs({'b': {LR: '0.1'}})
    assert [(run.method, run.seed) for run in final] == [
        (method, seed) for seed in (0, 1, 2) for method in ('a', 'b')
    ]
    assert {run.split for run in final} == {'test'}
    assert final[1].options[LR] == '0.1'
    folders = {run.folder for run in tuning + final}
    assert len(folders) == 12


def test_a_changed_config_or_option_changes_the_folder(content, config):
    folder = parse_plan(content).final_runs()[0].folder
    assert parse_plan(content).final_runs()[0].folder == folder
    content['cfg_options'] = {'x': 1}
    changed = parse_plan(content).final_runs()[0].folder
    assert changed != folder
    del content['cfg_options']
    config.write_text(config.read_text() + 'epochs = 3\n')
    os.utime(config, (1, 1))  # a clock tick may be too coarse
    assert parse_plan(content).final_runs()[0].folder not in (folder, changed)


def test_a_set_overrides_what_all_sets_share(content, config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content['config'] = [str(config)]
    content['cfg_options'] = {'model': {'a': 1, 'b': 2}}
    content['methods'].append({'name': 'c'})
    content['sets'] = {
        'small': {'seeds': [5], 'cfg_options': {'model': {'b': 3}}, 'leave_out': ['a']},
        'large': {'methods': {'c': {'config': str(config), 'cfg_options': {'model.b': 4}}}},
    }
    content['baseline'] = 'c'
    small = parse_plan({**content}, 'small')
    assert (small.seeds, small.out_dir) == ((5,), tmp_path / 'out/small')
    b, c = small.methods
    assert b.cfg_options == {'model.a': '1', 'model.b': '3', 'model.sizes': '[1,2]'}
    assert (c.name, c.cfg_options) == ('c', {'model.a': '1', 'model.b': '3'})
    assert small.final_runs()[0].folder.is_relative_to(small.out_dir)
    large = parse_plan({**content}, 'large')
    assert large.methods[2].cfg_options['model.b'] == '4'
    assert (large.methods[2].config, len(large.seeds)) == (str(config), 3)
    wrong = ({'sets': {'large': {'methods': {'d': {}}}}}, {'out_dir': 5}, {'methods': 'a.py'})
    for name, change in (('smal', {}), *(('large', change) for change in wrong)):
        with pytest.raises(UserError, match='Fix: '):
            parse_plan({**content, **change}, name)
    with pytest.raises(UserError, match='no sets'):
        parse_plan({'methods': []}, 'small')


def test_an_entry_with_each_is_a_row_for_each_value(content, config):
    each = {'model.a': [0.5, 1.0], 'model.b': ['x', 3]}
    common = {'config': str(config), 'cfg_options': {'model': {'a': 7, 'c': 8}}}
    content['methods'] = [
        {'name': 'a-{}', 'each': each, **common},
        {'name': 'b_{}', 'each': {'name': ['low', 'high'], **each}, **common},
    ]
    content['baseline'] = 'b_high'
    content['sets'] = {
        'small': {
            'leave_out': ['a-0*', '*low'],
            'methods': {'a*': {'cfg_options': {'model': {'a': 2}}}},
        },
        'large': {'leave_out': ['c*']},
    }
    first, second = parse_plan({**content}, 'small').methods
    shared = {'model.a': '1.0', 'model.b': '3', 'model.c': '8'}
    assert (first.name, first.cfg_options) == ('a-1.0', {**shared, 'model.a': '2'})
    assert (second.name, second.cfg_options) == ('b_high', shared)
    with pytest.raises(UserError, match=r"large.methods` is \['c\*'\]"):
        parse_plan({**content}, 'large')
    del content['sets']
    names = [method.name for method in parse_plan({**content}).methods]
    assert names == ['a-0.5', 'a-1.0', 'b_low', 'b_high']


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'methods': []}, '`methods: []`'),
        ({'seeds': []}, '`seeds: []`'),
        ({'metrics': []}, '`metrics: []`'),
        ({'baseline': 'c'}, '`baseline: c`'),
        ({'seeds': [9, 10]}, 'share [10]'),
        ({'tune': {}}, '`tune.seeds: []`'),
        ({'folds': [{'fold': 0}]}, '`seeds: [0, 1, 2] for 1 folds`'),
        ({'tune': {'folds': [3], 'seeds': [9]}}, '`tune.folds: [3]`'),
        ({'seeds': [], 'folds': [{'fold': 0}], 'tune': {'seeds': [9]}}, '`tune.folds: []`'),
        ({'folds': [3]}, '`folds[0]` is 3'),
        ({'sedes': [1]}, "unknown fields ['sedes']"),
        ({3: 1, 'tune': {'sedes': [1]}}, "unknown fields ['3', 'tune.sedes']"),
        ({'seeds': [1, 1]}, 'twice'),
        *(({'seeds': x}, '`seeds` is') for x in ('12', [1.5], [True], True, [-1], [2**32], None)),
        *(({'metrics': x}, '`metrics` is') for x in (5, None, [5], {'a': 1}, [''])),
        *(({'scale': x}, '`scale` is') for x in ('x', None, [1], math.nan, 0, -1, True)),
        *(({'out_dir': x}, '`out_dir` is') for x in (5, None, '', ['a'], 'a\0')),
        *(({'tune': x}, '`tune` is') for x in (5, [1], 'x')),
        *(({'folds': x}, '`folds` is') for x in (5, {'a': 1})),
        ({'tune': {'metric': [1]}}, '`metric` is'),
        ({'tune': {'grid': {LR: 0.1}, 'seeds': [9]}}, f'`tune.grid.{LR}` is 0.1'),
        ({'tune': {'grid': {LR: {'b': 1}}, 'seeds': [9]}}, f'`tune.grid.{LR}` is'),
        ({'methods': {'a': 'b'}}, '`methods` is'),
        ({'methods': [5]}, '`methods` is 5'),
        ({'methods': [['a.py']]}, "`methods` is ['a.py']"),
        ({'allow_shared_split': 'no'}, '`allow_shared_split` is'),
        *(({'methods': [{'config': x}]}, '`name` is') for x in (None, 5, [], [5])),
        *(({'methods': [{'name': 'x', 'config': x}]}, '`config` is') for x in (None, 5, [], [5])),
        ({'methods': [{'name': 'a'}]}, '`config` is'),
        ({'sets': {'small': {}}}, "has the sets ['small'], not ''"),
        *(
            ({'methods': [{'config': 'x.py', 'name': x}]}, '`name` is')
            for x in ('a/b', '.', '..', '', 5, 'a\0', 'a' * 300)
        ),
        *(
            ({'methods': [{'name': 'a', 'config': 'x.py', 'each': x}]}, message)
            for x, message in (
                ({}, '`each` is'),
                ({'b': 1}, '`each.b` is 1'),
                ({'b': [1], 'c': [1, 2]}, '`each` is'),
                ({'b': [1, 2]}, 'a name of its own for each'),
            )
        ),
        ({'methods': [{'config': 'x.py', 'seed': 1}]}, "unknown fields ['seed']"),
        ({'methods': [{'config': 'x.py', 'cfg_options': 'a=1'}]}, '`x.cfg_options` is'),
        ({'methods': ['x/a.py', 'y/a.py']}, 'a name of its own for each'),
        ({'methods': ['absent.py']}, "'absent.py' does not exist"),
        ({'methods': ['a\0.py']}, '`name` is'),
    ],
)
def test_a_wrong_plan_is_refused(content, change, message):
    with pytest.raises(UserError, match='Fix: ') as caught:
        parse_plan({**content, **change}).final_runs()
    assert message in str(caught.value)


@pytest.mark.parametrize('text', ['a: [', '', '- a', 'a', 'a: &x [*x]', '\udcff'])
def test_a_file_that_is_no_plan_is_one_message(tmp_path, text):
    path = tmp_path / 'plan.yaml'
    path.write_bytes(text.encode(errors='surrogateescape'))
    for file in (path, tmp_path / 'absent.yaml', tmp_path):
        with pytest.raises(UserError, match='Fix: '):
            read_plan(file)


def test_a_broken_config_is_named(content, config):
    config.write_text('x = 1 +')
    with pytest.raises(UserError, match=r'(?s)base\.py cannot be read.*Fix: '):
        parse_plan(content).final_runs()


def test_tuning_on_the_test_data_is_refused(content, config):
    check_splits(parse_plan(content))
    config.write_text(
        "val_dataloader = dict(dataset=dict(ann_file='val.json'))\n"
        'test_dataloader = val_dataloader\n'
    )
    with pytest.raises(ValueError, match='tests on its validation data'):
        check_splits(parse_plan(content))
    check_splits(parse_plan({**content, 'allow_shared_split': True}))


def test_choice_by_the_mean_of_the_tuning_metric(content):
    plan = parse_plan(content)

    def chosen_of(values):
        """What is chosen where each learning rate and seed has this accuracy, or failed."""
        runs = plan.tuning_runs()
        return choose(plan, [Outcome(run, values(run.options[LR], run.seed)) for run in runs])

    table = {'1e-4': 0.3, '0.1': 0.5, '1': 0.4}
    chosen, rows = chosen_of(lambda lr, seed: {'acc': table[lr] + seed / 100})
    assert chosen == {'b': {LR: '0.1'}}
    assert [row['chosen'] for row in rows] == [False, True, False]
    assert [row['at_edge'] for row in rows] == [True, False, True]
    assert rows[1]['mean'] == pytest.approx(0.605)
    # What failed on one seed is not chosen.
    chosen, rows = chosen_of(
        lambda lr, seed: None if (lr, seed) == ('1', 11) else {'acc': float(lr)}
    )
    assert chosen == {'b': {LR: '0.1'}}
    assert rows[2]['n'] == 1
    assert chosen_of(lambda lr, seed: None)[0] == {}


def test_some_folds_decide_for_all(content):
    """Each fold is trained with a seed of its own; one with the best mean over folds 0 and 2."""
    del content['seeds']
    content['folds'] = [{'data.fold': x} for x in range(3)]
    content['tune'] |= {'folds': [0, 2], 'cfg_options': {'data.part': 'inner'}}
    plan = parse_plan(content)
    tuning = plan.tuning_runs()
    assert len({r.folder for r in tuning}) == len(tuning) == 12
    assert {r.options['data.fold'] for r in tuning} == {'0', '2'}
    assert {r.options['data.part'] for r in tuning} == {'inner'}
    values = {('0', '0.1'): 0.9, ('2', '0.1'): 0.1, ('0', '1'): 0.6, ('2', '1'): 0.6}
    outcomes = [
        Outcome(r, {'acc': values.get((r.options['data.fold'], r.options[LR]), 0.0)})
        for r in tuning
    ]
    chosen, rows = choose(plan, outcomes)
    assert chosen == {'b': {LR: '1'}}
    assert [row['n'] for row in rows] == [4, 4, 4]
    # Where one is lost, the rest is no whole trial.
    lost = [Outcome(x.run, None) if x.run.options[LR] == '1' else x for x in outcomes[:-1]]
    assert choose(plan, lost)[0] == {'b': {LR: '0.1'}}
    final = plan.final_runs(chosen)
    assert [(r.method, r.seed, r.options['data.fold']) for r in final] == [
        (method, seed, str(seed)) for seed in range(3) for method in ('a', 'b')
    ]
    assert not any('data.part' in r.options for r in final)
    assert len({r.folder for r in final}) == 6


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


def study_plan(text, *where):
    return read_study(yaml.safe_load(text), *where)


def test_a_plan_names_its_trainings_and_goes_on_where_it_was(tmp_path):
    (tmp_path / 'known.yaml').write_text(KNOWN)
    plan = study_plan(PLAN, 'left', tmp_path)
    other = study_plan(PLAN, 'right', tmp_path)
    columns = ('method', 'seed', 'commit', 'mAP')
    record = Record(tmp_path / 'deep' / 'left.csv', columns)
    right = [*missing(other, Record(tmp_path / 'right.csv', columns))]
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
        left = [(x['seed'], x['method']) for x, _ in missing(plan, found)]
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
    for facts, method in missing(plan, record, 'mAP'):
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
    done = train_all(study_plan(TUNED), record)
    trials = [('a', 0.1, 'X'), ('a', 0.3, 'X'), ('b', 0.2, 'Y'), ('b', 0.2, 'Z')]
    assert done[:8] == [('tune', seed, *trial) for seed in (1, 2) for trial in trials]
    best = [('a', 0.3, 'X'), ('b', 0.2, 'Z')]
    assert done[8:] == [('final', seed, *trial) for seed in (3, 4) for trial in best]
    assert not train_all(study_plan(TUNED), Record(tmp_path / 'x.csv', COLUMNS))
    # What a method does not tune is left out.
    plan = study_plan(TUNED.replace('rate: [0.2]', 'rate: null'))
    assert [[*method.grid] for method in plan.methods] == [['rate'], ['loss']]
    more = train_all(study_plan(TUNED.replace('[3, 4]', '[3, 4, 5]')), record)
    assert more == [('final', 5, *trial) for trial in best]
    only_trials = study_plan(TUNED.replace('seeds: [3, 4]', ''))
    assert train_all(only_trials, Record(tmp_path / 'y.csv', COLUMNS)) == done[:8]


def test_a_record_without_stages_keeps_no_trial(tmp_path):
    """As it was written before trials were: what its final rows were trained with still counts."""
    path = tmp_path / 'x.csv'
    first = dict(method='a', seed=3, step=10, settings='{"rate": 0.1}', mAP=0.5, commit='')
    write_rows(path, [first], first)
    record = Record(path, ('stage', *first))
    plan = study_plan(TUNED)
    for facts, method in missing(plan, record, 'mAP'):
        record.add([dict(facts, step=10, mAP=method['rate'])])
    rows = read_rows(path)
    assert [(x['method'], x['seed']) for x in rows] == [
        *(('a', '3'), ('b', '3'), ('a', '4'), ('b', '4'))
    ]
    assert all('0.1' in x['settings'] for x in rows if x['method'] == 'a')


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
        study_plan(text)
    assert message in str(caught.value)
