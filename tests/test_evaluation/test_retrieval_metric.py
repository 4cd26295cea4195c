import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.dataset import BaseDataset
from mmengine.evaluator import Evaluator
from mmengine.model import BaseModel
from mmengine.registry import METRICS
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement

from mmrank.evaluation.retrieval_metric import RetrievalMetric
from mmrank.functional import retrieval_metrics

sys.path.insert(0, str(Path(__file__).parents[1] / 'test_models'))
from gloo_processes import run_on_ranks


def make_set(samples=61, classes=7, seed=0):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (samples,), generator=g)
    return torch.randn(samples, 6, generator=g), labels


def data_samples(features, labels, **fields):
    result = []
    for i, (row, label) in enumerate(zip(features, labels)):
        sample = BaseDataElement(metainfo=dict(sample_idx=i))
        sample.set_field(row, 'feature')
        sample.set_field(label.reshape(1), 'gt_label')
        for name, values in fields.items():
            sample.set_field(values[i], name, field_type='metainfo')
        result.append(sample)
    return result


def evaluate(samples, batch=8, **options):
    metric = METRICS.build(dict(type='mmrank.RetrievalMetric', **options))
    evaluator = Evaluator(metric)
    for begin in range(0, len(samples), batch):
        evaluator.process(samples[begin : begin + batch])
    return evaluator.evaluate(len(samples))


def in_percent(figures):
    return {
        f'retrieval/{name}': value if 'queries' in name else 100 * value
        for name, value in figures.items()
    }


def test_equals_the_function_in_percent():
    x, y = make_set()
    got = evaluate(data_samples(x, y))
    assert got == pytest.approx(in_percent(retrieval_metrics(x, y).summary()))
    assert set(got) == {
        f'retrieval/{name}'
        for name in (
            *('mAP', 'R_precision', 'MAP_at_R', 'recall@1', 'recall@10'),
            *('recall@100', 'recall@1000', 'queries'),
            'queries_without_positive',
        )
    }


def test_options_reach_the_function():
    x, y = make_set()
    x = x * torch.linspace(0.1, 9, 61)[:, None]
    got = evaluate(
        data_samples(x, y), similarity='dot', recall_at=[2, 3], prefix='test'
    )
    expected = retrieval_metrics(x, y, similarity='dot').summary([2, 3])
    assert got['test/mAP'] == pytest.approx(100 * expected['mAP'])
    assert got['test/recall@3'] == pytest.approx(100 * expected['recall@3'])
    assert 'test/recall@1' not in got
    with pytest.raises(ValueError, match='memory_limit=10 is too small'):
        evaluate(data_samples(x, y), memory_limit=10)


def test_separate_gallery():
    x, y = make_set()
    mask = torch.arange(61) % 3 == 0
    got = evaluate(
        data_samples(x, y, to_gallery=mask), gallery_key='to_gallery'
    )
    expected = retrieval_metrics(x[~mask], y[~mask], x[mask], y[mask])
    assert got == pytest.approx(in_percent(expected.summary()))


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    x, y = make_set()
    got = evaluate(data_samples(x.to(dtype), y))
    expected = retrieval_metrics(x.to(dtype), y)
    assert got == pytest.approx(in_percent(expected.summary()))


class _Points(BaseDataset):
    def load_data_list(self):
        x, y = make_set()
        return [dict(x=a, y=b) for a, b in zip(x, y)]


class _Embedder(BaseModel):
    def forward(self, x, y, sample_idx, mode):
        assert mode == 'predict'
        assert len(sample_idx) == len(x)
        return data_samples(2 * x, y)


def test_in_a_runner(tmp_path):
    runner = Runner(
        model=_Embedder(),
        work_dir=str(tmp_path),
        val_dataloader=dict(
            dataset=_Points(),
            batch_size=9,
            sampler=dict(type='DefaultSampler', shuffle=False),
        ),
        val_cfg=dict(),
        val_evaluator=dict(type='mmrank.RetrievalMetric'),
        experiment_name='retrieval',
    )
    x, y = make_set()
    got = runner.val()
    expected = in_percent(retrieval_metrics(x, y).summary())
    assert {name: got[name] for name in expected} == pytest.approx(expected)


def _evaluate_part(rank, folder):
    x, y = make_set()
    # As DefaultSampler deals them: padded at the end to equal parts.
    own = torch.arange(rank, 62, 2) % 61
    metric = RetrievalMetric(collect_dir=folder)
    metric.process(None, [s.to_dict() for s in data_samples(x[own], y[own])])
    return [torch.tensor(list(metric.evaluate(61).values()))]


def test_two_ranks_equal_one_process(tmp_path):
    expected = list(evaluate(data_samples(*make_set())).values())
    for (got,) in run_on_ranks(_evaluate_part, 2, str(tmp_path / 'parts')):
        assert got.tolist() == pytest.approx(expected, rel=1e-6)


def test_bad_input_is_named():
    x, y = make_set(5)
    samples = data_samples(x, y)
    with pytest.raises(KeyError, match="'embedding' .feature_key.*'gt_label'"):
        evaluate(samples, feature_key='embedding')
    with pytest.raises(ValueError, match=r'shape \(D,\).*\[1, 6\]'):
        evaluate(data_samples(x[:, None], y))
    samples[2].set_field(torch.tensor([1, 2]), 'gt_label')
    with pytest.raises(ValueError, match=r'one class index, got \[1, 2\]'):
        evaluate(samples)
    with pytest.raises(ValueError, match=r'queries\[3\] holds NaN'):
        evaluate(data_samples(x.index_fill(0, torch.tensor(3), np.nan), y))
    with pytest.raises(ValueError, match='got no sample'):
        evaluate([])
    with pytest.raises(ValueError, match="similarity.*'l1'"):
        RetrievalMetric(similarity='l1')
    with pytest.raises(ValueError, match='at least 1, got 0'):
        RetrievalMetric(recall_at=[0])


def test_long_work_shows_its_progress(monkeypatch):
    from mmrank.evaluation import retrieval_metric as module

    lines = []
    monkeypatch.setattr(module, '_LOG_INTERVAL', 0.0)
    monkeypatch.setattr(module, 'print_log', lambda x, **_: lines.append(x))
    evaluate(data_samples(*make_set()), memory_limit=150_000)
    assert len(lines) > 1
    assert 'of 61 queries ranked' in lines[0]


def test_builds_without_mmdet_and_mmpretrain():
    code = (
        'import sys\n'
        'sys.modules["mmdet"] = sys.modules["mmpretrain"] = None\n'
        'from mmengine.registry import METRICS\n'
        'print(METRICS.build(dict(type="mmrank.RetrievalMetric")).recall_at)\n'
    )
    done = subprocess.run(
        [sys.executable, '-c', code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '(1, 10, 100, 1000)' in done.stdout
