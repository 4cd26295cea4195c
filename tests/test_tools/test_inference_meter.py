"""Speed and memory of a test loop, with known times and sizes; real configs in words."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from mmengine.config import Config

from detectors.inference_meter import (
    InferenceMeter,
    describe_backbone,
    describe_loss,
    describe_test_size,
)

ROOT = Path(__file__).parents[2]
STEP, LOAD = 0.02, 0.03


class Sleeper(torch.nn.Module):
    """A model whose batches take a known time; the first are slow."""

    def __init__(self, megabytes=0):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.megabytes = megabytes
        self.calls = 0

    def test_step(self, data):
        self.calls += 1
        time.sleep(STEP if self.calls > 2 else 10 * STEP)
        torch.ones(2**18 * self.megabytes)
        return list(data)


def run_loop(meter, model, batches):
    runner = SimpleNamespace(model=model, test_dataloader=batches)
    meter.before_test(runner)
    for index, batch in enumerate(batches):
        time.sleep(LOAD)
        outputs = model.test_step(batch)
        meter.after_test_iter(runner, index, batch, outputs)
    meter.after_test(runner)


def test_speeds_leave_out_warmup_and_data():
    meter, model = InferenceMeter(), Sleeper()
    meter.warmup = 2
    run_loop(meter, model, [[1, 2], [3, 4], [5, 6], [7, 8], [9]])
    assert meter.timed_images == 5
    # Sleeping takes at least its time, on a busy machine more.
    assert 3 * STEP <= meter.model_seconds < 20 * STEP
    assert meter.loop_seconds >= 3 * (STEP + LOAD)
    assert meter.images_per_second <= 5 / (3 * STEP)
    assert meter.images_per_second_with_data < meter.images_per_second
    # The model has its own method again.
    assert 'test_step' not in vars(model)
    assert model.calls == 5


def test_half_the_batches_count_at_least():
    meter = InferenceMeter()
    run_loop(meter, Sleeper(), [[1], [2], [3]])
    assert meter.timed_images == 2
    meter = InferenceMeter()
    run_loop(meter, Sleeper(), [[1]])
    assert meter.timed_images == 1


def measure_memory():
    """Memory of a small loop, of a large one, and of the small one again."""
    meters = []
    for megabytes in (0, 192, 0):
        meters.append(InferenceMeter())
        run_loop(meters[-1], Sleeper(megabytes), [[1], [2]])
    return [(meter.memory_bytes, meter.memory_kind) for meter in meters]


@pytest.mark.slow
def test_memory_is_what_the_loop_needs():
    # In a process of its own: memory that earlier tests have freed, and all that MALLOC_* in the
    # environment makes a process keep, can be used again without growing.
    keeping = ('MALLOC_', 'GLIBC_TUNABLES')
    env = {k: v for k, v in os.environ.items() if not k.startswith(keeping)}
    done = subprocess.run(
        [sys.executable, __file__],
        env=dict(env, PYTHONPATH=f'{ROOT}{os.pathsep}{ROOT}/tools/benchmarks'),
        stdout=subprocess.PIPE,
        check=True,
    )
    (small, _), (large, kind), (again, _) = json.loads(done.stdout)
    if small is None:
        pytest.skip('the system has no /proc/self/status')
    if kind == 'CPU, upper bound':
        pytest.skip('the peak of memory cannot be reset here')
    assert kind == 'CPU, growth + model'
    assert 180 * 2**20 < large < 260 * 2**20
    assert small < 64 * 2**20
    # The peak of an earlier loop does not count.
    assert again < 64 * 2**20


CONFIGS = ROOT / 'configs' / 'stable_ap'


@pytest.mark.parametrize(
    ('name', 'expected'),
    [
        ('retinanet_r18_fpn_stable-ap_demo', ('StableAP', 'ResNet-18', '256 x 192')),
        ('retinanet_r18_fpn_focal_bccd', ('Focal', 'ResNet-18', '320 x 240')),
    ],
)
def test_published_configs(name, expected):
    pytest.importorskip('mmdet')
    cfg = Config.fromfile(CONFIGS / f'{name}.py')
    size = describe_test_size(cfg.test_dataloader.dataset)
    found = describe_loss(cfg.model), describe_backbone(cfg.model), size
    assert found == expected


def test_two_stages_cascades_and_unknown():
    head = {'loss_cls': {'type': 'mmrank.RankSortLoss'}}
    assert describe_loss({'roi_head': {'bbox_head': head}}) == 'RankSort'
    assert describe_loss({'roi_head': {'bbox_head': [head, {}]}}) == 'RankSort'
    assert describe_loss({}) == '-'
    assert describe_backbone({'backbone': {'type': 'mmdet.CSPNeXt'}}) == ('CSPNeXt')
    assert describe_backbone({}) == '-'
    assert describe_test_size({}) == '-'
    wrapped = {'dataset': {'pipeline': [{'type': 'x', 'scale': (3, 2)}]}}
    assert describe_test_size(wrapped) == '3 x 2'


if __name__ == '__main__':
    print(json.dumps(measure_memory()))
