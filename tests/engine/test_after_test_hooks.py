"""What is measured after a test."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from labelled import LabelledItems
from mmengine.dataset import ConcatDataset
from mmengine.runner import Runner

pytest.importorskip('mmpretrain')

from mmpretrain.datasets import BaseDataset as ClassifiedDataset
from mmpretrain.registry import TRANSFORMS
from mmpretrain.structures import DataSample

from mmrank.engine.hooks import FurtherTestsHook, LinearEvaluationHook
from mmrank.errors import UserError


def pack_point(item):
    return dict(
        inputs=torch.tensor(item['point']), data_samples=DataSample().set_gt_label(item['gt_label'])
    )


def spoil(item):
    """What the augmentation replaces: no point can be told from another."""
    return {**item, 'point': [0.0, 0.0]}


@TRANSFORMS.register_module(force=True)
class Keep:
    def __call__(self, item):
        return item


class Points(ClassifiedDataset):
    """Two classes that a line divides."""

    METAINFO = {'classes': ('left', 'right')}  # noqa: RUF012

    def __init__(self, number, pipeline):
        self.number = number
        super().__init__(ann_file='', pipeline=pipeline)

    def load_data_list(self):
        rng = np.random.default_rng(self.number)
        return [
            dict(point=[float(x - 2 * (i % 2) + 0.5), 1.0], gt_label=i % 2)
            for i, x in enumerate(rng.random(self.number))
        ]


class Frozen(torch.nn.Module):
    """A backbone whose features are its inputs."""

    prompts = None

    def test_step(self, batch):
        for sample, row in zip(batch['data_samples'], batch['inputs']):
            sample.set_field(row, 'feature')
        return batch['data_samples']


def runner_of(*parts):
    loader = SimpleNamespace(dataset=ConcatDataset([*parts]))
    return SimpleNamespace(
        model=Frozen(),
        test_dataloader=loader,
        val_dataloader=loader,
        build_dataloader=Runner.build_dataloader,
        build_evaluator=lambda x: x,
    )


def test_a_linear_classifier_is_trained_and_tested():
    pipeline = [pack_point]
    runner = runner_of(Points(40, [spoil, *pipeline]), Points(30, pipeline))
    hook = LinearEvaluationHook(
        [dict(type='mmpretrain.Keep')], 3, (1, 2), batch_size=8, num_workers=0
    )
    for name in ('test', 'val'):
        metrics = {'knn/accuracy': 1.0}
        getattr(hook, f'before_{name}')(runner)
        getattr(hook, f'after_{name}_epoch')(runner, metrics)
        assert metrics == {'knn/accuracy': 1.0, 'linear_sgd/accuracy': 100.0}
    # The pipeline of the test is as it was.
    assert runner.test_dataloader.dataset.datasets[0].pipeline.transforms == [spoil, pack_point]
    with pytest.raises(UserError, match='has not two parts'):
        LinearEvaluationHook().before_test(runner_of(Points(4, pipeline)))


def test_further_tests_add_their_metrics():
    class Counter:
        seen = 0

        def process(self, data_samples, data_batch):
            self.seen += len(data_samples)

        def evaluate(self, size):
            return {'accuracy/top1': 100 * self.seen / size}

    class Model(torch.nn.Module):
        prompts = None
        had = ()

        def set_zero_shot(self, zero_shot):
            self.prompts = zero_shot

        def test_step(self, batch):
            self.had = (*self.had, self.prompts)
            return batch['inputs']

    numbers = LabelledItems([dict(inputs=i) for i in range(3)])
    runner = runner_of(numbers)
    runner.model = Model()
    loader = dict(
        dataset=numbers,
        batch_size=2,
        num_workers=0,
        sampler=dict(type='DefaultSampler', shuffle=False),
    )
    test = dict(dataloader=loader, evaluator=Counter())
    hook = FurtherTestsHook({'a': {**test, 'zero_shot': {'classes': 'cifar10'}}, 'b': None})
    metrics = {'x': 1.0}
    hook.after_test_epoch(runner, metrics)
    assert metrics == {'x': 1.0, 'a/accuracy/top1': 100.0}
    assert runner.model.had == ({'classes': 'cifar10'},) * 2
    assert runner.model.prompts is None
