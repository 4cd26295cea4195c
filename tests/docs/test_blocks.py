"""Every Python block of README and pages runs, or is a config of which all parts are built.

``tools/misc/run_pages.py`` says which blocks run and which are configs; it runs those of the shell,
too, page by page in a clone, for minutes. The commands of the user pages: test_user_pages.py.
"""

import re

import pytest
import torch
from docs_blocks import PAGES, ROOT, block, blocks, values_of
from mmengine.config import Config
from mmengine.registry import HOOKS, METRICS, MODELS, init_default_scope
from published_configs import without_downloads

import run_pages
from documents import documents

#: Pages, or words of blocks, that have tests of their own.
ELSEWHERE = (
    *('write_a_loss.md', 'trainers.md', 'loss_checks.md', 'sentence_transformers.md'),
    *('torch.export', 'use_contrastive_loss', 'LogisticRegression', 'webdataset'),
    *("kind = 'RTDetr'", 'retinanet_resnet50_fpn', 'graded_average_precision'),
)


def python_blocks():
    for page in documents(ROOT):
        for found in run_pages.blocks(page):
            name = f'{page.relative_to(ROOT).as_posix()}:{found.line}'
            if 'python' not in found.opening or run_pages.reason_to_skip(found, ROOT):
                continue
            if not any(word in f'{name}\n{found.text}' for word in ELSEWHERE):
                yield pytest.param(found.text, id=name)


def config_of(text, folder):
    """The config that a reader saves the block as."""
    path = folder / 'my_config.py'
    path.write_text(text.replace('/path/to/configs', str(ROOT / 'configs')))
    return Config.fromfile(path)


def build_all(cfg):
    """Build what the config has whole."""
    for package in ('mmdet', 'mmpretrain'):
        pytest.importorskip(package)
    init_default_scope(cfg.get('default_scope', 'mmpretrain'))
    without_downloads(cfg)
    if 'text_encoder' in cfg.get('model', {}):  # published weights
        text_encoder = dict(_delete_=True, type='mmrank.TextTransformer', channels=32)
        cfg.merge_from_dict({'model.text_encoder': text_encoder})
    if 'type' in cfg.get('model', {}):
        MODELS.build(cfg.model)
    if 'type' in cfg.get('loss', {}):
        MODELS.build(cfg.loss)
    for hook in [*cfg.get('custom_hooks', ()), *cfg.get('default_hooks', {}).values()]:
        if hook.get('type', '').startswith('mmrank.'):
            HOOKS.build(hook)
    for split in ('val', 'test'):
        evaluator = cfg.get(f'{split}_evaluator') or {}
        if 'type' in evaluator and 'ann_file' not in evaluator:
            METRICS.build(evaluator)


@pytest.mark.parametrize('text', [*python_blocks()])
def test_python_block(text, folder):
    if run_pages.is_config(text):
        build_all(config_of(text, folder))
    else:
        values_of(text)


def test_the_quality_raises_the_ap_at_each_threshold(folder):
    values = values_of(block(PAGES / 'cocos_metric.md', 'graded_average_precision'))
    ranked, graded = (values['by_threshold'][quality] for quality in (0, 0.9))
    assert (graded > ranked).all()
    for quality, text in ((0, '0.26'), (0.9, '0.36')):
        metric = values['metric'][quality]
        torch.testing.assert_close(metric, values['by_threshold'][quality].mean())
        assert f'{metric:.2f}' == text


@pytest.mark.parametrize(
    ('page', 'mark', 'settings'),
    [
        ('get_started', '/path/to/configs', {'model.bbox_head.num_classes': 3}),
        (
            'users/detector',
            "classes=('cat', 'dog', 'cow')",
            {
                'model.bbox_head.num_classes': 3,
                'train_dataloader.dataset.metainfo.classes': ('cat', 'dog', 'cow'),
                'test_dataloader.dataset.data_root': 'data/mine/',
            },
        ),
        (
            'users/recommendation',
            "_base_ = 'configs/tutorials",
            {
                'train_dataloader.sampler.batch_size': 2048,
                'test_dataloader.dataset.data_root': 'data/mine/',
            },
        ),
    ],
)
def test_lines_for_own_data_reach_all_parts(page, mark, settings, folder):
    cfg = config_of(block(PAGES / f'{page}.md', mark), folder)
    for key, value in settings.items():
        node = cfg
        for part in key.split('.'):
            node = node[part]
        assert node == value, key


def test_state_of_a_loss_has_the_size_of_the_table(capsys):
    values_of(block(PAGES / 'scaling.md', 'ISogCLRLoss'))
    assert capsys.readouterr().out == '12 bytes a sample\n'
    assert '| 12 a sample;' in (PAGES / 'scaling.md').read_text('utf-8')


CALIBRATION = PAGES / 'calibration_and_deployment.md'


def test_calibration(capsys):
    """The figures of the page, those of the truth too."""
    pytest.importorskip('sklearn')
    from sklearn.metrics import brier_score_loss

    found = values_of(block(CALIBRATION, 'LogisticRegression'))
    said = capsys.readouterr().out
    (shown,) = blocks(CALIBRATION, 'text')
    number = re.compile(r'\d\.\d+')
    assert number.sub('', said) == number.sub('', shown)
    assert [float(x) for x in number.findall(said)] == pytest.approx(
        [float(x) for x in number.findall(shown)], abs=4e-3
    )
    text = ' '.join(CALIBRATION.read_text('utf-8').split())
    shown = float(re.search(r'have a Brier score of (\d\.\d+)', text)[1])
    score = brier_score_loss(found['test_labels'], found['chance'][6000:].numpy())
    assert score == pytest.approx(shown, abs=2e-3)


def test_pairs_in_tar_files(folder):
    """The numbers are those of the samples, and the state of each has moved."""
    pytest.importorskip('webdataset')
    (text,) = blocks(PAGES / 'users' / 'image_text.md', '{.python .needs-webdataset}')
    found = values_of(text)
    seen = [
        (int(number), caption)
        for _, captions, numbers in found['pairs']
        for number, caption in zip(numbers, captions)
    ]
    assert sorted(seen) == [(i, f'picture {i:06}') for i in range(64)]
    state = found['loss'].state_dict()
    fresh = type(found['loss'])(num_samples=64).state_dict()
    moved = [(state[k] != fresh[k]) for k in state if state[k].shape[:1] == (64,)]
    assert moved
    assert torch.stack(moved).any(0).all()


@pytest.mark.slow
def test_export(folder):
    pytest.importorskip('mmdet')
    found = values_of(block(CALIBRATION, 'torch.export'))
    image = torch.rand(1, 3, 192, 256)
    program = torch.export.load('detector.pt2').module()
    with torch.no_grad():
        expected = found['model'](image, mode='tensor')
        got = program(image, mode='tensor')
    for one, other in zip(got, expected):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
