"""The image-text model in mmengine's Runner, with data from files."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from cifar_trees import CIFAR10_NAMES
from mmengine.runner import Runner
from published_configs import load, rows

pytest.importorskip('mmpretrain')

PLAN = Path(__file__).parents[2] / 'configs' / 'clip' / 'caption_losses.yaml'


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp('captions'), np.random
    rng = rng.default_rng(0)
    for part, number in (('train', 12), ('val', 6)):
        lines = []
        for i in range(number):
            image = rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)
            name, file = CIFAR10_NAMES[i % 5], f'{part}{i}.png'
            cv2.imwrite(str(folder / file), image)
            captions = [f'a {name}', f'the {name}']
            lines.append(dict(image=file, caption=captions, label=name))
        text = '\n'.join(map(json.dumps, lines))
        (folder / f'{part}.jsonl').write_text(text)
    return folder


@pytest.mark.parametrize('name', ['isogclr', 'in-batch'])
def test_runner_trains_and_evaluates(folder, tmp_path, name):
    cfg = load(*rows(PLAN)[name])
    cfg.work_dir = str(tmp_path)
    cfg.train_dataloader.batch_size = 8
    cfg.train_dataloader.sampler.batch_size = 8
    for part in ('train', 'val', 'test'):
        dataset = cfg[f'{part}_dataloader'].dataset
        dataset.data_root = str(folder)
        if part == 'test':
            dataset.ann_file = 'val.jsonl'
    cfg.train_cfg.update(max_iters=3, val_interval=3)
    cfg.default_hooks.checkpoint.interval = 3
    if name == 'isogclr':
        cfg.model.head.loss.num_samples = 24
    cfg.experiment_name = f'image_text_{name}'
    runner = Runner.from_cfg(cfg)
    runner.train()
    loss = runner.model.head.loss_module
    if name == 'isogclr':
        # Three batches of 8 of the 24 pairs: each once.
        seen = loss.image_temperature.seen.nonzero()[:, 0]
        assert seen.tolist() == list(range(24))
    else:
        assert loss.counts.shape == (12, 10)
        assert loss.counts.col_counts.tolist() == [3, 3, 3, 3] + [2] * 6
    figures = runner.test()
    assert figures['image_text/num_images'] == 6
    assert figures['image_text/num_texts'] == 10
    for key in ('image_text/IR@1', 'image_text/TR@10', 'accuracy/top5'):
        assert 0 <= figures[key] <= 100
    state = torch.load(tmp_path / 'iter_3.pth', map_location='cpu', weights_only=False)[
        'state_dict'
    ]
    if name == 'isogclr':
        key = 'head.loss_module.text_temperature.tau'
        assert torch.equal(state[key], loss.text_temperature.tau)
