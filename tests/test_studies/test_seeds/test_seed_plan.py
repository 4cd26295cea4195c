"""Plans of comparisons: what is run, and what is refused."""

import json

import pytest

from mmrank.studies.seeds.outcome import Outcome
from mmrank.studies.seeds.plan_file import parse_plan, read_plan
from mmrank.studies.seeds.tuning import check_splits, choose

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
        'lower_better': ['time'],
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
    import os

    os.utime(config, (1, 1))  # a clock tick may be too coarse
    assert parse_plan(content).final_runs()[0].folder not in (folder, changed)


def test_read_yaml_json_and_python(content, tmp_path):
    plan = parse_plan(content)
    (tmp_path / 'plan.json').write_text(json.dumps(content))
    assert read_plan(tmp_path / 'plan.json') == plan
    text = '\n'.join(f'{key} = {value!r}' for key, value in content.items())
    (tmp_path / 'plan.py').write_text(text)
    assert read_plan(tmp_path / 'plan.py') == plan
    import yaml

    (tmp_path / 'plan.yaml').write_text(yaml.safe_dump(content))
    assert read_plan(tmp_path / 'plan.yaml') == plan


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'methods': []}, '`methods` is empty'),
        ({'seeds': []}, '`seeds` is empty'),
        ({'seeds': [1, 1]}, 'a seed twice'),
        ({'seeds': ['x']}, 'a list of integers'),
        ({'metrics': []}, '`metrics` is empty'),
        ({'baseline': 'c'}, "`baseline` 'c' is not one of the methods"),
        ({'lower_better': ['loss']}, "`lower_better` names \\['loss'\\]"),
        ({'seeds': [9, 10]}, 'share \\[10\\].*Use other seeds'),
        ({'tune': {}}, '`tune.seeds` is empty'),
        ({'tune': {'grid': {LR: 0.1}, 'seeds': [9]}}, 'set a list'),
        ({'sedes': [1]}, "unknown fields \\['sedes'\\]"),
    ],
)
def test_a_wrong_plan_is_refused(content, change, message):
    with pytest.raises(ValueError, match=message):
        parse_plan({**content, **change})


@pytest.mark.parametrize(
    ('method', 'message'),
    [
        ({'name': 'a'}, 'has no `config`'),
        ({'config': 'x.py', 'name': 'a/b'}, 'letters, digits'),
        ({'config': 'x.py', 'seed': 1}, "unknown fields \\['seed'\\]"),
        ({'config': 'x.py', 'cfg_options': 'lr=1'}, 'key: value'),
    ],
)
def test_a_wrong_method_is_refused(content, method, message):
    content['methods'] = [method]
    with pytest.raises(ValueError, match=message):
        parse_plan(content)


def test_two_methods_of_a_name_are_refused(content):
    content['methods'][1]['name'] = 'a'
    with pytest.raises(ValueError, match='Name each differently'):
        parse_plan(content)


def test_a_missing_config_is_named(content):
    content['methods'] = [{'config': 'absent.py'}]
    with pytest.raises(ValueError, match=r"'absent\.py' does not exist"):
        parse_plan(content).final_runs()


def test_a_broken_config_is_named(content, config):
    config.write_text('x = 1 +')
    with pytest.raises(ValueError, match=r'base\.py cannot be read'):
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


def make_outcomes(plan, values):
    """Give the tuning's runs the ``values`` of their learning rates."""
    return [
        Outcome(run, values(run.options[LR], run.seed))
        for run in plan.tuning_runs()
    ]


def test_choice_by_the_mean_of_the_tuning_metric(content):
    plan = parse_plan(content)
    table = {'1e-4': 0.3, '0.1': 0.5, '1': 0.4}
    chosen, rows = choose(
        plan,
        make_outcomes(plan, lambda lr, seed: {'acc': table[lr] + seed / 100}),
    )
    assert chosen == {'b': {LR: '0.1'}}
    assert [row['chosen'] for row in rows] == [False, True, False]
    assert [row['at_edge'] for row in rows] == [True, False, True]
    assert rows[1]['mean'] == pytest.approx(0.605)


def test_choice_where_less_is_better(content):
    content['tune']['metric'] = 'time'
    plan = parse_plan(content)
    outcomes = make_outcomes(plan, lambda lr, seed: {'time': float(lr)})
    assert choose(plan, outcomes)[0] == {'b': {LR: '1e-4'}}


def test_failed_combination_is_not_chosen(content):
    plan = parse_plan(content)

    def values(lr, seed):
        return None if (lr, seed) == ('1', 11) else {'acc': float(lr)}

    chosen, rows = choose(plan, make_outcomes(plan, values))
    assert chosen == {'b': {LR: '0.1'}}
    assert rows[2]['n'] == 1
    assert choose(plan, make_outcomes(plan, lambda lr, seed: None))[0] == {}
