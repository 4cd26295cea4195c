"""tools/compare_losses.py: the user's head with several losses, on stored features."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from mmengine.config import Config
from mmrank.own_data.answer import answer
from mmrank.own_data.head_losses import (
    count_classes,
    frozen_parts,
    has_pretrained,
    loss_changes,
    parse_loss,
    stored_config,
    usual_name,
    winner_text,
)
from mmrank.own_data.stored_features import StackStoredMaps, StoredSamples, write_samples

from mmrank.cli import compare as compare_losses
from mmrank.cli.compare import TRIAL, _seconds_of, _size_of, _try_out, make_plan
from mmrank.errors import UserError
from mmrank.experiments.plan import Method, SeedPlan
from mmrank.experiments.runs import Outcome
from mmrank.runners.folder_lock import lock_folder

ROOT = Path(__file__).parents[2]

HEADS = {
    'mmdet::atss/atss_r50_fpn_1x_coco.py': 'bbox_head',
    'mmdet::faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py': 'roi_head',
    'mmpretrain::resnet/resnet50_8xb32_in1k.py': 'head',
}


@pytest.mark.parametrize('name', HEADS)
def test_stock_configs_take_a_loss(name, tmp_path):
    path = tmp_path / 'mine.py'
    path.write_text(f'_base_ = {name!r}\n')
    cfg = Config.fromfile(path)
    changes = loss_changes(cfg.model, 'GradedAPLoss:loss_weight=0.3')
    assert HEADS[name] in changes
    assert has_pretrained(cfg.model) == ('mmdet' in name)
    made = stored_config(cfg, 'GradedAPLoss', tmp_path, ['backbone', 'neck'], 60)
    assert made.model.backbone.type == 'torch.nn.Identity'
    assert made.model.neck is None
    assert made.train_cfg.max_iters == 60
    assert 'mmrank.RankingMonitorHook' in [x.type for x in made.custom_hooks]
    winner = tmp_path / 'winner.py'
    winner.write_text(winner_text(path, changes, 'GradedAPLoss', 'why'))
    found = Config.fromfile(winner).model
    head = found[HEADS[name]].get('bbox_head', found[HEADS[name]])
    loss = head['loss_cls' if 'loss_cls' in head else 'loss']
    assert loss.to_dict() == dict(type='mmrank.GradedAPLoss', loss_weight=0.3)
    assert found.backbone == cfg.model.backbone
    args = SimpleNamespace(out=tmp_path, losses=['own'], metric='mAP')
    plan = make_plan(cfg, args, tmp_path, ['backbone'], 60, 2)
    assert plan.scale == (100 if 'mmdet' in name else 1)
    own = stored_config(cfg, 'own', tmp_path, ['backbone'], 60)
    assert own.model[HEADS[name]] == cfg.model[HEADS[name]]
    assert own.model.neck == cfg.model.neck


def test_what_is_stored():
    detector = dict(backbone=dict(type='ResNet'), neck=dict(type='FPN'))
    assert frozen_parts(detector, keeps_neck=True) == ['backbone', 'neck']
    assert frozen_parts(detector, keeps_neck=False) == ['backbone']
    assert frozen_parts(dict(image_encoder=[dict()]), keeps_neck=True) == ['image_encoder.0']


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('NoSuchLoss', 'has no loss .*losses.md'),
        ('APLoss:delta', "'delta' is not KEY=VALUE"),
        ('own:loss_weight=2', 'own has no settings'),
    ],
)
def test_invalid_losses_are_named(text, message):
    with pytest.raises(UserError, match=message):
        parse_loss(text)


def test_a_model_without_a_known_head_is_named():
    with pytest.raises(UserError, match='neither bbox_head, roi_head nor head'):
        loss_changes(dict(type='Odd'), 'GradedAPLoss')


def test_samples_come_back_and_are_stacked(tmp_path):
    from mmdet.structures import DetDataSample

    sizes = [(64, 96), (96, 64)]
    maps = [[torch.randn(1, 4, h // s, w // s).half().float() for s in (8, 16)] for h, w in sizes]
    samples = [DetDataSample(metainfo=dict(batch_input_shape=size)) for size in sizes]
    stored = iter(zip(maps, samples))
    write_samples(tmp_path / 'x', [{}, {}], lambda _: next(stored), dict(classes=['a']), 1.0)
    data = StoredSamples(str(tmp_path / 'x'))
    assert data.metainfo == dict(classes=['a'])
    for number, expected in enumerate(maps):
        for found, level in zip(data[number]['inputs'], expected):
            assert torch.equal(found, level[0])
    from mmengine.dataset import pseudo_collate

    # As classifiers of mmpretrain build it.
    batch = StackStoredMaps(batch_augments=None)(pseudo_collate([data[0], data[1]]))
    assert [tuple(x.shape) for x in batch['inputs']] == [(2, 4, 12, 12), (2, 4, 6, 6)]
    assert torch.equal(batch['inputs'][0][0, :, :8], maps[0][0][0])
    assert batch['inputs'][0][0, :, 8:].eq(0).all()
    assert [x.batch_input_shape for x in batch['data_samples']] == [(96, 96)] * 2
    stored = iter(zip(maps, samples))
    with pytest.raises(UserError, match='fewer images'):
        write_samples(tmp_path / 'y', [{}, {}], lambda _: next(stored), {}, 1e-7)
    assert not (tmp_path / 'y.index').exists()


def test_losses_that_count_classes_train_on_stored_features(tmp_path):
    from mmpretrain.structures import DataSample

    from mmrank.engine.hooks.loss_hooks import ClassCountsHook, _count_classes

    samples = [DataSample(metainfo=dict(num_classes=3)).set_gt_label(x) for x in (2, 0, 2)]
    stored = iter((torch.zeros(1, 4), sample) for sample in samples)
    write_samples(tmp_path / 'x', [{}] * 3, lambda _: next(stored), {}, 1.0)
    assert _count_classes(StoredSamples(str(tmp_path / 'x'))).tolist() == [1, 0, 2]
    several = DataSample().set_gt_score(torch.tensor([1.0, 0.0, 1.0]))
    write_samples(tmp_path / 'y', [{}], lambda _: (torch.zeros(1, 4), several), {}, 1.0)
    assert _count_classes(StoredSamples(str(tmp_path / 'y'))).tolist() == [1, 0, 1]
    path = tmp_path / 'mine.py'
    path.write_text("_base_ = 'mmpretrain::resnet/resnet50_8xb32_in1k.py'\n")
    made = stored_config(Config.fromfile(path), 'BalancedSoftmaxLoss', tmp_path, ['backbone'], 9)
    assert f'mmrank.{ClassCountsHook.__name__}' in [x.type for x in made.custom_hooks]


@pytest.mark.parametrize(
    ('model', 'has_weights'),
    [
        (dict(backbone=dict(init_cfg=None)), False),
        (dict(backbone=dict(pretrained=False)), False),
        (dict(backbone=dict(), neck=dict(init_cfg=dict(type='Pretrained'))), False),
        (dict(backbone=dict(pretrained=True)), True),
        (dict(backbone=dict(), init_cfg=dict(type='Pretrained')), True),
        (dict(image_encoder=[dict(backbone=dict(init_cfg=[dict(type='Pretrained')]))]), True),
    ],
)
def test_weights_of_the_part_that_is_stored(model, has_weights):
    assert has_pretrained(model) == has_weights


@pytest.mark.parametrize(
    ('model', 'classes'),
    [
        (dict(bbox_head=dict(num_classes=3)), 3),
        (dict(rpn_head=dict(num_classes=1), roi_head=dict(bbox_head=dict(num_classes=2))), 2),
        (dict(roi_head=dict(bbox_head=[dict(num_classes=1)])), None),
        (dict(head=dict(num_classes=1)), None),
    ],
)
def test_the_classes_of_a_detector(model, classes):
    assert count_classes(model) == classes


def test_the_budget_gives_steps_and_seeds():
    assert [_seconds_of(x) for x in ('90s', '20m', '1.5h')] == [90, 1200, 5400]
    with pytest.raises(UserError, match='is not a time'):
        _seconds_of('20')
    assert _size_of(1200, before=0, fixed=10, step=1) == (390, 3)
    assert _size_of(1200, before=300, fixed=10, step=1) == (290, 3)
    assert _size_of(1200, before=0, fixed=10, step=0.1) == (500, 10)


@pytest.mark.parametrize('seconds', [(0, 10, 1), (100, 10, 1), (241, 17.3, 0.37)])
def test_the_budget_that_is_named_is_enough(seconds):
    with pytest.raises(UserError, match='too small for 3 seeds') as error:
        _size_of(60, *seconds)
    budget = re.search(r'--budget (\d+m)', str(error.value))[1]
    steps, seeds = _size_of(_seconds_of(budget), *seconds)
    before, fixed, step = seconds
    assert before + seeds * (fixed + steps * step) <= _seconds_of(budget)


@pytest.fixture
def trainings(monkeypatch):
    """Folders of the trainings that ran, each in 8 s and 0.5 s a step, and what they find."""
    done = SimpleNamespace(folders=[], mAP=0.5)

    def work_off(console, plan, runs):
        for run in runs:
            done.folders.append(plan.out_dir.name)
            folder = run.folder / 'start' / 'vis_data'
            folder.mkdir(parents=True, exist_ok=True)
            (folder / 'scalars.json').write_text('{"time": 0.5, "step": 1}\n' * TRIAL)
        return [Outcome(run, {'mAP': done.mAP}, 8.0 + TRIAL * 0.5) for run in runs]

    monkeypatch.setattr(compare_losses, 'work_off', work_off)
    return done


def test_a_trial_measures_a_start_and_a_step(tmp_path, trainings):
    (tmp_path / 'x.py').write_text('x = 1')
    plan = SeedPlan(tmp_path / 'trial', (Method('a', str(tmp_path / 'x.py')),), (100,), ())
    for _ in range(2):  # the second one removes what the first one left
        assert _try_out(plan) == (8.0, 0.5, ['mAP'])
    [run] = plan.final_runs()
    (run.folder / 'precious').touch()
    # After a SIGKILL of the comparison its trainings go on.
    with lock_folder(run.folder), pytest.raises(UserError, match='in use by another process'):
        _try_out(plan)
    assert (run.folder / 'precious').exists()


@pytest.fixture
def compare(tmp_path, monkeypatch):
    """Compares losses for a detector with stored features that are made up."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'x').mkdir()
    base = "_base_ = 'mmdet::atss/atss_r50_fpn_1x_coco.py'\n"
    data = "data = dict(dataset=dict(data_root='x', ann_file='a.json'))\n"
    text = f'{base}{data}train_dataloader = data\nval_dataloader = data\n'
    stored = []

    def store_features(cfg, args, folder, parts, *names):
        stored.append(names)
        folder.mkdir(parents=True, exist_ok=True)
        return 30.0

    def run(budget, model='', losses=('own', 'GradedAPLoss')):
        (tmp_path / 'mine.py').write_text(f'{text}model = dict({model})\n')
        words = ['compare', 'mine.py', '--budget', budget]
        monkeypatch.setattr(sys, 'argv', words + (['--losses', *losses] if losses else []))
        return compare_losses.main()

    monkeypatch.setattr(compare_losses, 'store_features', store_features)
    monkeypatch.setattr(compare_losses, 'report', lambda *args: 'a table\n\nits notes')
    run.stored = stored
    run.winner = tmp_path / 'work_dirs/compare_mine/winner.py'
    return run


def test_one_trial_serves_all_budgets(tmp_path, trainings, compare):
    with pytest.raises(UserError, match='--budget') as error:
        compare('1m')
    assert compare.stored == [('val', 'trial')]  # not all the images
    assert trainings.folders == ['trial']
    assert compare(re.search(r'--budget (\d+m)', str(error.value))[1]) == compare('20m') == 0
    assert trainings.folders == ['trial'] + ['trainings'] * 12
    assert Config.fromfile(compare.winner).model.bbox_head.loss_cls.type == 'mmrank.GradedAPLoss'
    (tmp_path / 'x/a.json').touch()  # other data: the features are stored anew
    compare('5m')
    assert trainings.folders[13:] == ['trial'] + ['trainings'] * 6


def test_random_weights_are_refused_before_anything_is_stored(trainings, compare):
    with pytest.raises(UserError, match='random weights.*--checkpoint.*new-config --small'):
        compare('5m', model='backbone=dict(init_cfg=None)')
    assert not compare.stored
    assert not trainings.folders


def test_where_nothing_was_learnt_there_is_no_answer(trainings, compare, capsys):
    trainings.mAP = 0.0099
    assert compare('6m') == 1
    assert not compare.winner.exists()
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.search('No loss has learnt anything.*0.99.*--budget .*500 steps.*--checkpoint', last)
    trainings.mAP = 0.01
    assert compare('6m') == 0
    assert compare.winner.exists()


@pytest.mark.parametrize('head', ['', "type='mmrank.ListwiseHead', head_type='mmdet.ATSSHead', "])
def test_the_answer_is_the_last_line_and_knows_one_class(trainings, compare, capsys, head):
    if head:
        head += "loss_cls=dict(_delete_=True, type='mmrank.GradedAPLoss'), "
    for classes in (1, 2):
        assert compare('20m', f'bbox_head=dict({head}num_classes={classes})', losses=()) == 0
        table, following, last = capsys.readouterr().out.splitlines()
        # A config that has the recommended loss is compared with another one.
        level = 'QualityFocalLoss' if head else 'own'
        assert f'GradedAPLoss is recommended: level with {level}, RankSortLoss.' in last
        assert ('With one class the lead of a ranking loss' in last) == (classes == 1)
        assert table == 'a table'
        assert following.startswith('Next: mmrank train')


OWN = {1: 20.0, 2: 21.0, 3: 20.5}
NEAR = {1: 20.2, 2: 20.9, 3: 20.9}
AHEAD = {seed: value + 2 + 0.1 * seed for seed, value in OWN.items()}
#: Detectors report 26.4 and 26.5: one step of rounding in each pair.
STEP = {seed: value + 0.1 for seed, value in OWN.items()}


@pytest.mark.parametrize(
    ('runs', 'usual', 'best', 'words'),
    [
        (dict(own=OWN, best=AHEAD), None, 'best', 'best is recommended: ahead of all others. own'),
        (dict(own=OWN, best=AHEAD), None, 'best', 'own is behind best by 2.20 [1.95, 2.45].'),
        (dict(own=OWN, near=NEAR), None, 'near', 'near is recommended: level with own. 3 seeds'),
        (dict(own={1: 1.0}, other={1: 3.0}), None, 'other', 'level with own. One seed cannot'),
        (dict(own=OWN, step=STEP), None, 'step', 'level with own.'),
        # The usual loss is recommended only where it is level.
        (dict(own=OWN, near=NEAR), 'own', 'own', 'own is recommended: level with near.'),
        (dict(own=OWN, best=AHEAD), 'own', 'best', 'ahead of all others.'),
        (dict(own={1: 0.9}, other={1: 0.8}), 'own', None, 'the highest mean of m is 0.90, below'),
    ],
)
def test_the_answer_says_what_is_level(runs, usual, best, words):
    found, sentence = answer({name: {'m': values} for name, values in runs.items()}, 'm', usual)
    assert found == best
    assert words in sentence


@pytest.mark.parametrize(
    ('model', 'usual'),
    [
        ({'bbox_head': {}}, 'weighted'),
        ({'roi_head': {}}, 'weighted'),
        ({'head': {}}, 'stable'),
        ({'image_encoder': [], 'head': {}}, 'stable'),
    ],
)
def test_the_usual_loss_of_a_model(model, usual):
    losses = {
        'own': 'own',
        'stable': 'StableAPLoss:tau=auto',
        'weighted': 'GradedAPLoss:loss_weight=0.3',
        'plain': 'GradedAPLoss',
    }
    assert usual_name(model, losses) == usual
    assert usual_name(model, {'own': 'own'}) is None


@pytest.mark.slow
def test_a_detector_is_compared_and_goes_on(tmp_path, run):
    data = tmp_path / 'shapes'
    words = '--num-train 16 --num-val 6 --num-test 0 --image-size 96 96 --object-size 20 60'
    run('dataset_converters/make_shapes_coco', '--out', data, words)
    config = tmp_path / 'mine.py'
    run('new_config', '--coco', data, '--out', config, '--small')
    command = [sys.executable, ROOT / 'tools/compare_losses.py', config, '--losses', 'own']
    command += ['RankSortLoss', '--views', '1', '--out', tmp_path / 'out', '--budget']

    def compare(budget):
        return subprocess.run([*command, budget], capture_output=True, text=True, check=False)

    refused = compare('1s')
    assert refused.returncode == 2, refused.stderr[-3000:]
    assert not [*tmp_path.glob('out/features/*/train.index')]
    budget = re.search(r'--budget (\d+m)', refused.stderr)[1]
    tables = []
    for _ in range(2):
        ended = compare(budget)
        assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
        # A table of two losses and two more lines: no log.
        assert len(ended.stdout.splitlines()) == 6, ended.stdout
        assert not ended.stderr
        tables.append((tmp_path / 'out/trainings/runs.csv').read_text())
    assert tables[0] == tables[1]
    assert Config.fromfile(tmp_path / 'out/winner.py').model.bbox_head
    assert (tmp_path / 'out/trainings/boxplot.png').stat().st_size > 1000
    assert len([*tmp_path.glob('out/features/*/train.index')]) == 1
