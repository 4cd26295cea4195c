"""Hooks that measure more of a model after its test."""

import copy
from collections.abc import Mapping, Sequence

import torch
from mmengine.dataset import Compose
from mmengine.dist import all_reduce, get_world_size
from mmengine.hooks import Hook
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from mmrank.engine.runners import unwrap_model
from mmrank.errors import UserError
from mmrank.registry import HOOKS


@HOOKS.register_module()
class LinearEvaluationHook(Hook):
    """Trains a linear classifier on the frozen backbone after a test: iSogCLR's linear evaluation.

    The test or validation goes through ``mmrank.IndexedConcatDataset`` of the images to train on
    and the images to classify; the model leaves ``data_sample.feature``. The metrics of the test
    get ``linear_sgd/accuracy``, in percent. SGD has Nesterov momentum 0.9 and no weight decay.
    Source: iSogCLR (ICML 2023), section 6.1. ``mmrank.LinearProbeMetric`` is the quick form.

    Args:
        transforms: Configs of what augments an image of the training; they stand in place of all
            that the pipeline of the test does between loading and packing.
        epochs: Epochs of the classifier.
        milestones: Epochs after which the learning rate is multiplied by 0.2.
        lr: Learning rate at the start.
        batch_size: Images of a batch, of all processes together.
        num_workers: Processes that load images.
    """

    def __init__(
        self,
        transforms: Sequence[dict] = (),
        epochs: int = 100,
        milestones: Sequence[int] = (40, 60, 80),
        lr: float = 30.0,
        batch_size: int = 256,
        num_workers: int = 4,
    ) -> None:
        self.transforms = list(transforms)
        self.epochs = epochs
        self.milestones = list(milestones)
        self.lr = lr
        self.batch_size = batch_size
        self.num_workers = num_workers

    def before_val(self, runner) -> None:
        self._parts(runner.val_dataloader.dataset)

    def before_test(self, runner) -> None:
        self._parts(runner.test_dataloader.dataset)

    def after_val_epoch(self, runner, metrics: dict | None = None) -> None:
        metrics |= self._evaluate(runner, runner.val_dataloader.dataset)

    def after_test_epoch(self, runner, metrics: dict | None = None) -> None:
        metrics |= self._evaluate(runner, runner.test_dataloader.dataset)

    @staticmethod
    def _parts(dataset: Dataset) -> list[Dataset]:
        parts = getattr(dataset, 'datasets', ())
        if len(parts) != 2:
            what = 'LinearEvaluationHook is in custom_hooks'
            fix = "dataset=dict(type='mmrank.IndexedConcatDataset', datasets=[train, test])"
            raise UserError(f'{what}, but the data set of the evaluation has not two parts', fix)
        return parts

    def _evaluate(self, runner, dataset: Dataset) -> dict[str, float]:
        train, test = self._parts(dataset)
        train = copy.copy(train)
        steps = train.pipeline.transforms
        loading = [step for step in steps[:-1] if type(step).__name__ == 'LoadImageFromFile']
        train.pipeline = Compose([*loading, *self.transforms, steps[-1]])
        loader = self._loader(runner, train, is_training=True)
        classifier = None
        for epoch in range(self.epochs):
            loader.sampler.set_epoch(epoch)
            for batch in loader:
                features, labels = _features(runner.model, batch)
                if classifier is None:
                    num_classes = 1 + max(int(x.get_gt_labels().max()) for x in (train, test))
                    classifier = nn.Linear(features.size(1), num_classes)
                    # The same in all processes.
                    generator = torch.Generator().manual_seed(0)
                    nn.init.normal_(classifier.weight, std=0.01, generator=generator)
                    nn.init.zeros_(classifier.bias)
                    classifier.to(features.device)
                    optimizer = torch.optim.SGD(
                        classifier.parameters(), self.lr, momentum=0.9, nesterov=True
                    )
                    schedule = torch.optim.lr_scheduler.MultiStepLR(
                        optimizer, self.milestones, gamma=0.2
                    )
                optimizer.zero_grad()
                cross_entropy(classifier(features), labels).backward()
                for weight in classifier.parameters():
                    all_reduce(weight.grad, 'mean')
                optimizer.step()
            schedule.step()
        hits = torch.zeros(2, device=features.device)
        for batch in self._loader(runner, test, is_training=False):
            features, labels = _features(runner.model, batch)
            right = classifier(features).argmax(1) == labels
            hits += torch.stack([right.sum(), torch.tensor(len(right), device=right.device)])
        all_reduce(hits)
        return {'linear_sgd/accuracy': 100 * float(hits[0] / hits[1])}

    def _loader(self, runner, dataset: Dataset, is_training: bool):
        return runner.build_dataloader(
            dict(
                dataset=dataset,
                batch_size=max(1, self.batch_size // get_world_size()),
                num_workers=self.num_workers,
                persistent_workers=bool(self.num_workers and is_training),
                sampler=dict(
                    type='DefaultSampler', shuffle=is_training, round_up=is_training, seed=0
                ),
                collate_fn=dict(type='default_collate'),
            )
        )


@torch.no_grad()
def _features(model: nn.Module, batch: dict) -> tuple[Tensor, Tensor]:
    """(B, D) features and (B,) labels of a batch."""
    found = model.test_step(batch)
    features = torch.stack([x.feature for x in found]).float()
    return features, torch.cat([x.gt_label for x in found]).to(features.device)


@HOOKS.register_module()
class FurtherTestsHook(Hook):
    """Tests a model on more data sets after its test; the metrics of the test get the others.

    Args:
        tests: By the name that goes before its metrics, as in ``coco/image_text/IR@1``: the
            ``dataloader`` and ``evaluator`` of a test, and, for ``mmrank.ImageTextDualEncoder``,
            ``zero_shot``. None for a test of a base config leaves it out.
    """

    def __init__(self, tests: Mapping[str, dict | None] | None = None) -> None:
        self.tests = {name: test for name, test in (tests or {}).items() if test}

    def after_test_epoch(self, runner, metrics: dict | None = None) -> None:
        for name, test in self.tests.items():
            found = self._test(runner, **test)
            metrics |= {f'{name}/{key}': value for key, value in found.items()}

    @torch.no_grad()
    def _test(self, runner, dataloader: dict, evaluator: dict, zero_shot: dict | None = None):
        loader = runner.build_dataloader(dataloader)
        evaluator = runner.build_evaluator(evaluator)
        evaluator.dataset_meta = getattr(loader.dataset, 'metainfo', None)
        model = unwrap_model(runner.model)
        if zero_shot:
            before = model.prompts
            model.set_zero_shot(zero_shot)
        for batch in loader:
            evaluator.process(data_samples=runner.model.test_step(batch), data_batch=batch)
        if zero_shot:
            model.prompts = before
            model.eval()  # forgets the embeddings of the classes
        return evaluator.evaluate(len(loader.dataset))
