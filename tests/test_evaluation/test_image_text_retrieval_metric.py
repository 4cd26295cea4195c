"""IR@K and TR@K of a model's data samples."""

import numpy as np
import pytest
import torch
from mmengine.evaluator import Evaluator
from mmengine.registry import METRICS


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
