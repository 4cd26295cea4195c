"""What every registered metric keeps to; apart, since every process imports this file."""

from functools import cache

import numpy as np
import pytest
import torch
from gloo_processes import run_on_ranks
from retrieval_brute_force import in_blocks

from mmrank.errors import UserError
from mmrank.registry import METRICS

SIZE = 61
CLASSES = list('abcdefg')


def make_set():
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(7, (SIZE,), generator=g)
    return torch.randn(SIZE, 6, generator=g) + labels[:, None] % 3, labels


def feature_samples(**fields):
    return [
        (None, dict(feature=row, gt_label=label.view(1), **{k: v[i] for k, v in fields.items()}))
        for i, (row, label) in enumerate(zip(*make_set()))
    ]


def score_samples():
    g = torch.Generator().manual_seed(0)
    scores, target = torch.rand(SIZE, 3, generator=g), torch.rand(SIZE, 3, generator=g) < 0.3
    return [(None, dict(pred_score=s, gt_score=t.float())) for s, t in zip(scores, target)]


def caption_samples():
    g = torch.Generator().manual_seed(0)
    samples = []
    for image in torch.randn(SIZE, 6, generator=g):
        count = int(torch.randint(0, 4, (1,), generator=g))
        texts = image + torch.randn(count, 6, generator=g)
        ids = [(len(samples) + k) % 9 for k in range(count)]
        samples.append((None, dict(image_feature=image, text_feature=texts, text_id=ids)))
    return samples


def top_k_samples():
    g = torch.Generator().manual_seed(0)
    samples = []
    for _ in range(SIZE):
        true = torch.randperm(12, generator=g)[: int(torch.randint(1, 5, (1,), generator=g))]
        batch = dict(true=dict(rows=torch.zeros_like(true), cols=true))
        samples.append((batch, dict(top_k=torch.randperm(12, generator=g)[:6])))
    return samples


#: Name: samples, fields of floats, and options whose figures differ.
CASES = {
    'AveragePrecisionMetric': (score_samples, ('pred_score',), [{}, dict(classwise=True)]),
    'ImageTextRetrievalMetric': (
        caption_samples,
        ('image_feature', 'text_feature'),
        [dict(recall_at=(1, 5)), dict(recall_at=(1, 5), merge_texts=True)],
    ),
    'KNNMetric': (
        lambda: feature_samples(dataset_idx=torch.arange(SIZE) % 3),
        ('feature',),
        [dict(k=7), dict(k=3, per_class=True)],
    ),
    'LinearProbeMetric': (
        lambda: feature_samples(dataset_idx=torch.arange(SIZE) % 3),
        ('feature',),
        [{}, dict(per_class=True)],
    ),
    'RetrievalMetric': (
        lambda: feature_samples(to_gallery=torch.arange(SIZE) % 3 == 0),
        ('feature',),
        [{}, dict(gallery_key='to_gallery'), dict(recall_at=(1, 3))],
    ),
    'TopKMetric': (top_k_samples, (), [dict(k=(1, 5)), dict(k=(2,))]),
}
NAMES = sorted(CASES)


@cache
def samples_of(name):
    return CASES[name][0]()


def build(name, **options):
    if name not in ('AveragePrecisionMetric', 'TopKMetric'):
        options.setdefault('device', 'cpu')
    metric = METRICS.build(dict(type=f'mmrank.{name}', **options))
    metric.dataset_meta = dict(classes=CLASSES)
    return metric


def feed(metric, samples, batch=8):
    # A batch of TopKDataset holds the pairs of its samples in one.
    batch = 1 if type(metric).__name__ == 'TopKMetric' else batch
    for begin in range(0, len(samples), batch):
        batches, found = zip(*samples[begin : begin + batch])
        metric.process(batches[0], found)


def evaluate(name, samples, batch=8, **options):
    metric = build(name, **options)
    feed(metric, samples, batch)
    # Several blocks, so that each rank has some.
    with in_blocks(150_000):
        return metric.evaluate(SIZE)


def test_every_registered_metric_is_here():
    METRICS.import_from_location()
    # CocoMetric is mmdet's, with a test of its own.
    assert set(METRICS.module_dict) == {*CASES, 'CocoMetric'}


@pytest.mark.parametrize('name', NAMES)
def test_figures_have_the_prefix_and_depend_on_options_not_on_batches(name):
    samples, variants = samples_of(name), CASES[name][2]
    found = [evaluate(name, samples, **options) for options in variants]
    prefix = METRICS.get(f'mmrank.{name}').default_prefix
    for figures in found:
        assert all(key.startswith(f'{prefix}/') for key in figures)
        assert all(isinstance(value, float | int) for value in figures.values())
        assert [*figures.values()] not in [[*x.values()] for x in found if x is not figures]
    assert evaluate(name, samples, batch=50, **variants[0]) == found[0]
    renamed = evaluate(name, samples, prefix='mine', **variants[0])
    assert renamed == {k.replace(prefix, 'mine', 1): v for k, v in found[0].items()}


@pytest.mark.parametrize('name', NAMES)
def test_a_second_evaluation_starts_anew_and_none_is_refused(name):
    metric = build(name, **CASES[name][2][0])
    feed(metric, samples_of(name))
    metric.evaluate(SIZE)
    with pytest.raises(ValueError, match=f'{name} got no sample; is the data set empty'):
        metric.evaluate(SIZE)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize('name', [name for name in NAMES if CASES[name][1]])
def test_figures_are_those_of_the_rounded_values(name, dtype):
    def cast(*kinds):
        changed = []
        for batch, sample in samples_of(name):
            floats = {key: sample[key] for key in CASES[name][1]}
            for kind in kinds:
                floats = {key: value.to(kind) for key, value in floats.items()}
            changed.append((batch, {**sample, **floats}))
        return changed

    options = CASES[name][2][0]
    got = evaluate(name, cast(dtype), **options)
    assert got == pytest.approx(evaluate(name, cast(dtype, torch.float32), **options))


def _on_rank(rank, ranks, folder):
    values = []
    for name in NAMES:
        # As DefaultSampler deals them: in turns, padded at the end.
        size = -(-SIZE // ranks) * ranks
        own = [samples_of(name)[i % SIZE] for i in range(rank, size, ranks)]
        for number, options in enumerate(CASES[name][2]):
            place = f'{folder}/{name}{number}'
            figures = evaluate(name, own, collect_dir=place, **options)
            values.append(torch.tensor([*figures.values()], dtype=torch.float64))
    for name in ('KNNMetric', 'RetrievalMetric'):
        # Rank 1 learns of the failure, and does not wait.
        with pytest.raises((ValueError, RuntimeError), match='got no sample'):
            build(name, collect_dir=f'{folder}/empty{name}').evaluate(SIZE)
    return values


@pytest.mark.processes
@pytest.mark.parametrize('ranks', [2, pytest.param(3, marks=pytest.mark.slow)])
def test_ranks_equal_one_process(tmp_path, ranks):
    cases = [(name, options) for name in NAMES for options in CASES[name][2]]
    expected = [evaluate(name, samples_of(name), **options) for name, options in cases]
    for results in run_on_ranks(_on_rank, ranks, ranks, str(tmp_path)):
        for got, figures, case in zip(results, expected, cases, strict=True):
            assert got.tolist() == pytest.approx([*figures.values()], rel=1e-9), case


@pytest.mark.parametrize(
    ('name', 'options', 'error', 'message'),
    [
        ('ImageTextRetrievalMetric', dict(recall_at=[0]), ValueError, 'int >= 1, got 0'),
        ('KNNMetric', dict(k=0), ValueError, 'k must be > 0'),
        ('KNNMetric', dict(tau=0), ValueError, 'tau must be > 0'),
        ('LinearProbeMetric', dict(l2=0), TypeError, 'LinearProbeMetric does not take l2=0'),
        ('RetrievalMetric', dict(similarity='l1'), TypeError, "similarity='l1'.*one of .*prefix"),
        ('RetrievalMetric', dict(recall_at=[0]), ValueError, 'int >= 1, got 0'),
        ('RetrievalMetric', dict(recall_at=3), TypeError, r'Fix: recall_at=\[3\]'),
        ('RetrievalMetric', dict(out_file='x.pkl'), ValueError, r"end in \.npz, got 'x.pkl'"),
        ('TopKMetric', dict(k=()), ValueError, 'k must be positive'),
    ],
)
def test_wrong_settings_are_refused(name, options, error, message):
    with pytest.raises(error, match=message):
        build(name, **options)


NAN = torch.tensor([0, np.nan, 1, 2, 3, 4])
INDICES = torch.arange(3)
ROW = torch.arange(3.0)


@pytest.mark.parametrize(
    ('name', 'change', 'error', 'message'),
    [
        (
            'AveragePrecisionMetric',
            dict(pred_score=NAN[:3]),
            ValueError,
            "sample 0 for class '1' is NaN",
        ),
        ('AveragePrecisionMetric', dict(gt_score=ROW), ValueError, 'must be 0 or 1, got 2.0'),
        ('AveragePrecisionMetric', 'pred_score', KeyError, 'no pred_score'),
        ('ImageTextRetrievalMetric', 'image_feature', KeyError, 'no image_feature'),
        ('ImageTextRetrievalMetric', dict(image_feature=NAN), ValueError, 'NaN or infinity'),
        ('KNNMetric', 'dataset_idx', KeyError, 'IndexedConcatDataset'),
        ('KNNMetric', 'feature', KeyError, "'feature' .feature_key of KNNMetric"),
        ('KNNMetric', dict(feature=NAN), ValueError, 'not finite'),
        ('RetrievalMetric', 'gt_label', KeyError, "'gt_label' .label_key.*'feature'"),
        ('RetrievalMetric', dict(gt_label=INDICES), ValueError, r'class index, got \[0, 1, 2\]'),
        ('RetrievalMetric', dict(feature=NAN), ValueError, r'queries\[0\] holds NaN'),
        ('RetrievalMetric', dict(gt_label=torch.tensor([-1])), UserError, r'>= 0, got \[-1\]'),
        ('KNNMetric', dict(gt_label=torch.tensor([-1])), UserError, r'>= 0, got \[-1\]'),
        ('TopKMetric', dict(top_k=torch.arange(3)), ValueError, 'set top_k=25'),
    ],
)
def test_wrong_samples_are_named(name, change, error, message):
    samples = [(batch, dict(sample)) for batch, sample in samples_of(name)]
    if isinstance(change, str):
        del samples[0][1][change]
    else:
        samples[0][1].update(change)
    with pytest.raises(error, match=message):
        evaluate(name, samples)
