"""Retrieval metrics of images, and of images and texts."""

import numpy as np
import pytest
import torch
from mmengine.evaluator import Evaluator
from mmengine.registry import METRICS
from mmengine.structures import BaseDataElement

from mmrank.errors import UserError
from mmrank.evaluation.retrieval_features import load_features
from mmrank.evaluation.retrieval_metric import RetrievalMetric
from mmrank.functional import retrieval_metrics

ROLES = torch.arange(61) % 3 == 0
PATHS = [f'images/{i}.png' for i in range(61)]
NAMES = ['mAP', 'R_precision', 'MAP_at_R', 'recall@1', 'recall@10', 'recall@100', 'recall@1000']
COUNTS = ['queries', 'queries_without_positive']


def make_set(samples=61):
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(7, (samples,), generator=g)
    scale = torch.linspace(0.1, 9, samples)[:, None]
    return scale * torch.randn(samples, 6, generator=g), labels


def data_samples(features, labels):
    result = []
    for i, (row, label) in enumerate(zip(features, labels)):
        fields = dict(sample_idx=i, to_gallery=ROLES[i], img_path=PATHS[i])
        fields |= dict(camera=i % 4, search=i % 5 == 0, place=PATHS[i])
        sample = BaseDataElement(metainfo=fields)
        sample.set_field(row, 'feature')
        sample.set_field(label.reshape(1), 'gt_label')
        result.append(sample)
    return result


def evaluate(samples, batch=8, **options):
    metric = METRICS.build(dict(type='mmrank.RetrievalMetric', **options))
    metric.dataset_meta = dict(classes=list('abcdefg'))
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
    assert set(got) == {f'retrieval/{name}' for name in NAMES + COUNTS}
    got = evaluate(data_samples(x, y), recall_at=[2, 3])
    assert got == pytest.approx(in_percent(retrieval_metrics(x, y).summary([2, 3])))
    got = evaluate(data_samples(x, y), gallery_key='to_gallery')
    expected = retrieval_metrics(x[~ROLES], y[~ROLES], x[ROLES], y[ROLES])
    assert got == pytest.approx(in_percent(expected.summary()))
    with pytest.raises(ValueError, match=r'shape \(D,\).*\[1, 6\]'):
        evaluate(data_samples(x[:, None], y))


def test_cameras_are_left_out_and_queries_are_in_the_gallery():
    x, y = make_set()
    samples, cameras, search = data_samples(x, y), torch.arange(61) % 4, torch.arange(61) % 5 == 0
    got = evaluate(samples, leave_out='camera')
    assert got == pytest.approx(in_percent(retrieval_metrics(x, y, leave_out=cameras).summary()))
    sets = x[search], y[search], x, y
    got = evaluate(samples, query_key='search')
    ids = torch.arange(61)
    expected = retrieval_metrics(*sets, leave_out=(ids[search], ids)).summary()
    assert got == pytest.approx(in_percent(expected))
    assert got['retrieval/queries'] == 13
    got = evaluate(samples, query_key='search', leave_out='camera', gallery_key='to_gallery')
    expected = retrieval_metrics(
        *sets[:2], x[ROLES], y[ROLES], leave_out=(cameras[search], cameras[ROLES])
    ).summary()
    assert got == pytest.approx(in_percent(expected))
    with pytest.raises(ValueError, match="'place' .leave_out. must be one integer, got 'images/0"):
        evaluate(samples, leave_out='place')
    with pytest.raises(UserError, match='out_file does not hold .*Fix: leave out_file out'):
        RetrievalMetric(leave_out='camera', out_file='a.npz')
    for sample in samples:
        sample.set_field(torch.tensor([0, 1]), 'gt_label')
    with pytest.raises(UserError, match='2 levels, of which .*leave_out='):
        evaluate(samples, leave_out='camera')


def test_several_labels_an_image(monkeypatch):
    x, y = make_set()
    hot = torch.zeros(61, 9, dtype=torch.bool)
    hot[torch.arange(61), y] = True
    hot[::3, 8] = True
    hot[5] = False  # an image of which nothing is known
    expected = in_percent(retrieval_metrics(x, hot).summary())
    samples = data_samples(x, y)
    for sample, row in zip(samples, hot):
        sample.set_field(row.nonzero()[:, 0], 'gt_label')
        sample.set_field(row.float(), 'gt_score')
    assert evaluate(samples, multi_label=True) == pytest.approx(expected)
    with monkeypatch.context() as patched:
        patched.setattr(RetrievalMetric, 'label_key', 'gt_score')
        assert evaluate(samples, multi_label=True) == pytest.approx(expected)
    cameras = torch.arange(61) % 4
    expected = in_percent(retrieval_metrics(x, hot, leave_out=cameras).summary())
    assert evaluate(samples, multi_label=True, leave_out='camera') == pytest.approx(expected)
    for bad, fix in ((torch.tensor([0.5]), 'round'), (torch.tensor([-1, 2]), 'without a class')):
        samples[0].set_field(bad, 'gt_label')
        with pytest.raises(UserError, match=f"'gt_label' must hold class indices.*{fix}"):
            evaluate(samples, multi_label=True)


def test_features_are_written(tmp_path):
    x, y = make_set()
    file = tmp_path / 'made' / 'features.npz'
    figures = evaluate(data_samples(x.half(), y), out_file=str(file), gallery_key='to_gallery')
    assert [f.name for f in file.parent.iterdir()] == ['features.npz']
    got = load_features(file)
    assert torch.equal(got.features, x.half())
    assert torch.equal(got.labels, y)
    assert torch.equal(got.in_gallery, ROLES)
    assert (got.paths, got.classes) == (PATHS, list('abcdefg'))
    assert figures == pytest.approx(in_percent(retrieval_metrics(*got.sets()).summary()))
    assert torch.equal(got.labels[got.rows_of_queries()], got.sets()[1])
    assert torch.equal(got.labels[got.rows_of_gallery()], got.sets()[3])
    # Without paths, roles and classes.
    metric = RetrievalMetric(out_file=str(file))
    samples = [sample.to_dict() for sample in data_samples(x.bfloat16(), y)]
    for sample in samples:
        del sample['img_path']
    metric.process(None, samples)
    metric.evaluate(61)
    got = load_features(file)
    assert torch.equal(got.features, x.bfloat16().float())
    assert got.in_gallery is got.paths is got.classes is None
    assert len(got.sets()) == 2


@pytest.mark.parametrize(
    ('labels', 'message'),
    [
        ({}, "no array 'labels'"),
        (dict(labels=np.ones(3)), "'labels' of integers"),
        (dict(labels=np.arange(4)), r"'labels' has the shape \(4,\)"),
        (dict(labels=np.zeros((3, 1), int)), "no array 'labels' of integers"),
        (dict(labels=np.arange(3), features=np.ones(3)), r"'features' of floats, \(N, D\)"),
        (dict(labels=np.arange(3), features=np.ones((3, 2), '>f4')), 'Fix: write them as float32'),
        (dict(labels=np.arange(3), in_gallery=np.array(list('abc'))), "'in_gallery' of bool"),
    ],
)
def test_wrong_arrays_are_named(tmp_path, labels, message):
    file = tmp_path / 'x.npz'
    np.savez(file, **{'features': np.ones((3, 2)), **labels})
    with pytest.raises(UserError, match=message):
        load_features(file)


GOOD = dict(features=np.ones((3, 2)), labels=np.zeros(3, int))
CONTENTS = [b'', b'text', b'PK\x03\x04 half a file', b'(3, 2(', b'(9**9)', b'(-3,2)']


@pytest.mark.parametrize('content', CONTENTS)
def test_other_and_damaged_files_are_named(tmp_path, content):
    file = tmp_path / 'x.npz'
    with pytest.raises(UserError, match=r'x.npz.*does not exist'):
        load_features(file)
    if content.startswith(b'('):  # in place of the shape in the header
        np.savez(file, **GOOD)
        content = file.read_bytes().replace(b'(3, 2)', content, 1)
    file.write_bytes(content)
    with pytest.raises(UserError, match=r'x.npz is not an \.npz'):
        load_features(file)


def build(**kwargs):
    config = dict(type='mmrank.ImageTextRetrievalMetric', recall_at=(1, 2))
    return Evaluator(METRICS.build({**config, **kwargs}))


def samples(images, texts, ids=None):
    ids = ids or [None] * len(texts)
    for image, own, own_ids in zip(images, texts, ids):
        sample = dict(image_feature=torch.as_tensor(image))
        if len(own):
            sample['text_feature'] = torch.as_tensor(own)
        if own_ids is not None:
            sample['text_id'] = own_ids
        yield sample


def loops(images, texts, k):
    """The benchmarks' protocol, one query after the other."""
    owners = [i for i, own in enumerate(texts) for _ in own]
    rows = [row for own in texts for row in own]
    image_hits = [
        i in np.argsort([-np.dot(row, x) for x in images])[:k] for row, i in zip(rows, owners)
    ]
    text_hits = []
    for i, image in enumerate(images):
        best = np.argsort([-np.dot(image, row) for row in rows])[:k]
        if len(texts[i]):
            text_hits.append(any(owners[j] == i for j in best))
    return 100 * np.mean(image_hits), 100 * np.mean(text_hits)


@pytest.mark.parametrize('counts', [[1] * 9, [5, 1, 2, 3, 0, 5, 1, 1, 4]])
def test_equals_loops(counts):
    rng = np.random.default_rng(0)
    images = rng.normal(size=(9, 4)).astype(np.float32)
    texts = [(x + rng.normal(size=(n, 4))).astype(np.float32) for x, n in zip(images, counts)]
    evaluator = build()
    given = list(samples(images, texts))
    for part in (given[:4], given[4:]):
        evaluator.process(data_samples=part)
    got = evaluator.evaluate(9)
    for k in (1, 2):
        expected = loops(images, texts, k)
        assert got[f'image_text/IR@{k}'] == pytest.approx(expected[0])
        assert got[f'image_text/TR@{k}'] == pytest.approx(expected[1])
    assert got['image_text/num_texts'] == sum(counts)


def test_equal_captions_can_be_one_text():
    # Images 0 and 1 have the same caption, in another order of similarity.
    images = torch.eye(3)
    text = torch.tensor([[0.9, 1.0, 0.0]])
    texts = [text, text, torch.eye(3)[2:]]
    ids = [4, 4, [7]]
    apart, merged = build(), build(merge_texts=True)
    for evaluator in (apart, merged):
        evaluator.process(data_samples=list(samples(images, texts, ids)))
    apart, merged = apart.evaluate(3), merged.evaluate(3)
    # The text of image 0 finds image 1, and the tie of equal texts is lost.
    assert apart['image_text/IR@1'] == pytest.approx(200 / 3)
    assert apart['image_text/TR@1'] == pytest.approx(100 / 3)
    assert apart['image_text/num_texts'] == 3
    assert merged['image_text/IR@1'] == merged['image_text/TR@1'] == 100
    assert merged['image_text/num_texts'] == 2


def test_bad_input_is_refused():
    evaluator = build()
    evaluator.process(data_samples=list(samples(torch.eye(2), [[], []])))
    with pytest.raises(ValueError, match='no data sample has a text_feature'):
        evaluator.evaluate(2)
    given = list(samples(torch.eye(2), list(torch.eye(2)[:, None])))
    with pytest.raises(ValueError, match='text_id must be one integer for each of the 1 texts'):
        build(merge_texts=True).process(data_samples=given)
