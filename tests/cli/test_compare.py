"""mmrank compare: the user's config with several losses, whole trainings."""

import sys
from pathlib import Path

import pytest
from mmengine.config import Config

from mmrank.cli import compare
from mmrank.errors import UserError
from mmrank.experiments.loss_changes import config_text, loss_changes, parse_loss, shorter_schedule
from mmrank.experiments.runs import Outcome
from mmrank.experiments.statistics import verdict

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
    winner = tmp_path / 'winner.py'
    winner.write_text(config_text(str(path), {'model': changes}, 'why'))
    found = Config.fromfile(winner).model
    head = found[HEADS[name]].get('bbox_head', found[HEADS[name]])
    loss = head['loss_cls' if 'loss_cls' in head else 'loss']
    assert loss.to_dict() == dict(type='mmrank.GradedAPLoss', loss_weight=0.3)
    assert found.backbone == cfg.model.backbone
    winner.write_text(config_text(str(path), {'model': loss_changes(cfg.model, 'own')}, 'why'))
    assert Config.fromfile(winner).model == cfg.model


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


def test_a_shorter_training_ends_its_schedules():
    steps = [
        dict(type='LinearLR', by_epoch=False, begin=0, end=500),
        dict(type='MultiStepLR', begin=0, end=12, milestones=[8, 11]),
        dict(type='CosineAnnealingLR', T_max=12, begin=0, end=12),
    ]
    cfg = Config(dict(train_cfg=dict(max_epochs=12), param_scheduler=steps))
    made = shorter_schedule(cfg, 3)
    assert made['train_cfg'] == dict(max_epochs=3, val_interval=3)
    found = [[x.get(key) for key in ('begin', 'end', 'T_max')] for x in made['param_scheduler']]
    assert found == [[0, 125, None], [0, 3, None], [0, 3, 3]]
    assert made['param_scheduler'][1]['milestones'] == [2, 3]
    assert cfg.param_scheduler[0].end == 500
    with pytest.raises(UserError, match='counts iterations'):
        shorter_schedule(Config(dict(train_cfg=dict(max_iters=90))), 3)


OWN = {0: 20.0, 1: 21.0, 2: 20.5}
NEAR = {0: 20.2, 1: 20.9, 2: 20.9}
AHEAD = {seed: value + 2 + 0.1 * seed for seed, value in OWN.items()}
#: Detectors report 26.4 and 26.5: one step of rounding in each pair.
STEP = {seed: value + 0.1 for seed, value in OWN.items()}


@pytest.mark.parametrize(
    ('values', 'best', 'words'),
    [
        (dict(own=OWN, new=AHEAD), 'new', 'ahead of all others. own is behind by 2.10 [1.85, '),
        (dict(own=OWN, near=NEAR), 'near', 'level with own. 3 seeds tell differences of about '),
        (dict(own={0: 1.0}, other={0: 3.0}), 'other', 'level with own. One seed cannot tell'),
        (dict(own=OWN, step=STEP), 'step', 'level with own.'),
        (dict(own=OWN), 'own', 'the only one.'),
    ],
)
def test_the_sentence_says_what_is_level(values, best, words):
    found, sentence = verdict(values)
    assert found == best
    assert words in sentence


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Compares losses by trainings that are made up; the figures are by method."""
    (tmp_path / 'mine.py').write_text(
        "_base_ = 'mmdet::atss/atss_r50_fpn_1x_coco.py'\nmodel = dict()\n"
        "val_evaluator = dict(outfile_prefix='precious')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, 'report', lambda *args: None)

    def run(figures, *words):
        def work_off(console, runs):
            run.runs = runs
            found = [{'coco/AR': 0.9, 'coco/bbox_mAP': figures[x.method]} for x in runs]
            # What is not finite is not among the metrics.
            kept = [{key: x for key, x in own.items() if x is not None} for own in found]
            return [Outcome(x, own) for x, own in zip(runs, kept)]

        monkeypatch.setattr(compare, 'work_off', work_off)
        monkeypatch.setattr(sys, 'argv', ['compare', 'mine.py', *words])
        return compare.main()

    run.out = tmp_path / 'work_dirs/compare_mine'
    return run


def test_the_best_loss_has_a_config(call, capsys):
    figures = {'own': 0.2, 'GradedAPLoss': 0.3, 'RankSortLoss': 0.1}
    assert call(figures, '--epochs', '2', '--seeds', '2') == 0
    assert [(x.method, x.seed, x.split) for x in call.runs[:4]] == [
        ('own', 0, 'val'),
        ('GradedAPLoss', 0, 'val'),
        ('RankSortLoss', 0, 'val'),
        ('own', 1, 'val'),
    ]
    trained = Config.fromfile(call.runs[1].config)
    assert trained.train_cfg.max_epochs == 2
    assert trained.val_evaluator.outfile_prefix.endswith('trainings/GradedAPLoss/val')
    assert not trained.train_dataloader.persistent_workers
    assert trained.custom_hooks == [dict(type='mmrank.RNGStateHook')]
    winner = Config.fromfile(call.out / 'winner.py')
    assert winner.model.bbox_head.loss_cls.type == 'mmrank.GradedAPLoss'
    assert winner.train_cfg.max_epochs == 12
    assert 'GradedAPLoss has the highest mean' in capsys.readouterr().out.splitlines()[-1]


def test_a_config_of_the_recommended_loss_is_compared_with_another_one(call, tmp_path):
    text = "model = dict(bbox_head=dict(type='mmrank.ListwiseHead', head_type='mmdet.ATSSHead', "
    text += "loss_cls=dict(_delete_=True, type='mmrank.GradedAPLoss')))\n"
    with (tmp_path / 'mine.py').open('a') as file:
        file.write(text)
    call(dict(own=0.3, QualityFocalLoss=0.2, RankSortLoss=0.2))
    assert {x.method for x in call.runs} == {'own', 'QualityFocalLoss', 'RankSortLoss'}


def test_a_training_that_diverged_or_learnt_nothing_has_failed(call, capsys):
    assert call(dict(own=0.009), '--losses', 'own') == 1
    assert not (call.out / 'winner.py').exists()
    assert 'No loss has learnt anything' in capsys.readouterr().out
    figures = {'own': None, 'GradedAPLoss': 0.3}
    assert call(figures, '--losses', 'own', 'GradedAPLoss', 'own', '--seeds', '1') == 1
    assert len(call.runs) == 2
    assert 'GradedAPLoss has the highest mean, the only one.' in capsys.readouterr().out
    assert (call.out / 'winner.py').exists()
