"""Metrics of a whole test set compared with the work that each cannot do without."""

import functools
import logging

import numpy as np
import torch
from mmengine.logging import MMLogger
from torch import Tensor
from torch.nn.functional import normalize

from mmrank.evaluation.frozen_feature_metrics import L2, MAX_ITER, TOLERANCE, LinearProbe
from mmrank.registry import METRICS

from .row import Row, Sides, Sizes, Step, installed, products

#: Held-out pairs of a left entity.
HELD_OUT = 10
CAPTIONS = 5
#: Queries of a block of the bare products: as many as the metric takes.
BLOCK = 512


def metric_rows(sizes: Sizes) -> list[Row]:
    # The metrics log their tables.
    MMLogger.get_current_instance().setLevel(logging.WARNING)
    n = sizes.searched
    d = sizes.dimensions
    bank = n - n // 5
    queries = n // 5
    bare = 'the bare products'
    captions = f'{n // 10} images, {CAPTIONS} texts of each, {d}-d'
    found = f'{n // 10} left entities, 25 found, {HELD_OUT} held out'
    scores = f'{sizes.rows} x {sizes.classes} scores'
    probe = 'two products of each evaluation of L-BFGS'
    rows = (
        ('KNNMetric', _nearest, f'{queries} images search {bank}, {d}-d', bare),
        ('LinearProbeMetric', _probe, f'{queries} images, 10 classes, {d}-d', probe),
        ('ImageTextRetrievalMetric', _image_text, captions, 'one product for both directions'),
        ('AveragePrecisionMetric', _average_precision, scores, 'sorts of each class and of all'),
        ('TopKMetric', _top_k, found, 'a sort of all found pairs'),
        ('RetrievalMetric', _retrieval, f'{n} images search each other, {d}-d', bare),
    )
    return [Row(name, '', *words, functools.partial(make, sizes)) for name, make, *words in rows]


def _finished(metric, samples: list[dict]) -> Step:
    """The figures, from what the metric keeps of the samples."""
    metric.process(None, samples)
    return lambda: metric.compute_metrics(metric.results)


def make_set(samples: int, dimensions: int, class_size: int, spread: float) -> tuple:
    """Embeddings and labels, classes of about one size; more spread makes retrieval harder."""
    g = torch.Generator().manual_seed(0)
    classes = max(samples // class_size, 1)
    labels = torch.randint(classes, (samples,), generator=g)
    x = torch.randn(samples, dimensions, generator=g).mul_(spread)
    means = torch.randn(classes, dimensions, generator=g)
    for part, of_class in zip(x.split(4096), labels.split(4096)):
        part.add_(means[of_class])
    return normalize(x), labels


def bare_products(queries: Tensor, gallery: Tensor) -> None:
    """Multiply blocks of queries with the gallery, into a buffer."""
    buffer = gallery.new_empty(BLOCK, gallery.size(0))
    for part in queries.split(BLOCK):
        torch.mm(part, gallery.T, out=buffer[: part.size(0)])


def _retrieval(sizes: Sizes) -> Sides:
    x, labels = make_set(sizes.searched, sizes.dimensions, sizes.class_size, 2.0)
    metric = METRICS.build(dict(type='mmrank.RetrievalMetric', device=sizes.device))
    samples = [dict(feature=row, gt_label=label) for row, label in zip(x, labels)]
    peers = {}
    if installed('faiss'):
        import faiss

        index = faiss.IndexFlatIP(sizes.dimensions)
        index.add(x.numpy())

        def search() -> None:
            faiss.omp_set_num_threads(torch.get_num_threads())
            index.search(x.numpy(), min(100, len(x)))

        peers['faiss, 100 nearest, no mAP'] = search
    x = x.to(sizes.device)
    return Sides(lambda: bare_products(x, x), _finished(metric, samples), peers)


def _features(count: int, sizes: Sizes) -> tuple:
    """Features of ten classes, of which a fifth are queries."""
    x, labels = make_set(count, sizes.dimensions, max(count // 10, 1), 4.0)
    is_bank = torch.arange(count) % 5 > 0
    samples = [
        dict(feature=row, gt_label=label, dataset_idx=int(not bank))
        for row, label, bank in zip(x, labels, is_bank)
    ]
    return x, labels, is_bank, samples


def _nearest(sizes: Sizes) -> Sides:
    x, labels, is_bank, samples = _features(sizes.searched, sizes)
    metric = METRICS.build(dict(type='mmrank.KNNMetric', device=sizes.device))
    bank = int(is_bank.sum())
    queries = int((~is_bank).sum())
    peers = {}
    if installed('sklearn'):
        from sklearn.neighbors import KNeighborsClassifier

        def classify() -> None:
            KNeighborsClassifier(
                min(metric.k, bank),
                metric='cosine',
                algorithm='brute',
                weights=lambda distances: np.exp(-distances / metric.tau),
            ).fit(x[is_bank], labels[is_bank]).predict(x[~is_bank])

        peers['scikit-learn'] = classify
    return Sides(
        products([(queries, sizes.dimensions, bank)], sizes.device),
        _finished(metric, samples),
        peers,
    )


def _probe(sizes: Sizes) -> Sides:
    x, labels, is_bank, samples = _features(sizes.searched // 5, sizes)
    metric = METRICS.build(dict(type='mmrank.LinearProbeMetric', device=sizes.device))
    classes = int(labels.max()) + 1
    known = x[is_bank]
    probe = LinearProbe(known, labels[is_bank], classes)
    rows = known.double().to(sizes.device)
    weight = probe.weight.t().to(sizes.device)

    def floor() -> None:
        for _ in range(probe.iterations):
            rows.t() @ (rows @ weight)

    peers = {}
    if installed('sklearn'):
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        def fit() -> None:
            model = LogisticRegression(C=1 / (len(known) * L2), tol=TOLERANCE, max_iter=MAX_ITER)
            model = make_pipeline(StandardScaler(), model)
            model.fit(known.double().numpy(), labels[is_bank].numpy())
            model.predict(x[~is_bank].double().numpy())

        peers['scikit-learn'] = fit
    return Sides(floor, _finished(metric, samples), peers)


def _image_text(sizes: Sizes) -> Sides:
    images = max(sizes.searched // 10, 1)
    g = torch.Generator().manual_seed(0)
    d = sizes.dimensions
    samples = [
        dict(
            image_feature=torch.randn(d, generator=g),
            text_feature=torch.randn(CAPTIONS, d, generator=g),
        )
        for _ in range(images)
    ]
    metric = METRICS.build(dict(type='mmrank.ImageTextRetrievalMetric', device=sizes.device))
    return Sides(
        products([(images, d, CAPTIONS * images)], sizes.device), _finished(metric, samples)
    )


def _average_precision(sizes: Sizes) -> Sides:
    g = torch.Generator().manual_seed(0)
    shape = sizes.rows, sizes.classes
    label = (torch.rand(shape, generator=g) < 0.05).long()
    label[0] = 0
    label[1] = 1
    score = torch.randn(shape, generator=g) + label
    samples = [dict(pred_score=row, gt_score=own) for row, own in zip(score, label)]
    metric = METRICS.build(dict(type='mmrank.AveragePrecisionMetric'))
    columns = score.t().contiguous()

    def floor() -> None:
        columns.sort(dim=1, descending=True)
        columns.flatten().sort(descending=True)

    peers = {}
    if installed('sklearn'):
        from sklearn.metrics import average_precision_score, roc_auc_score

        arrays = label.numpy(), score.numpy()

        def scikit() -> None:
            for average in ('macro', 'micro'):
                average_precision_score(*arrays, average=average)
                roc_auc_score(*arrays, average=average)

        peers['scikit-learn'] = scikit
    if installed('torchmetrics'):
        from torchmetrics.functional.classification import (
            multilabel_auroc,
            multilabel_average_precision,
        )

        def torchmetrics() -> None:
            for average in ('macro', 'micro'):
                for figure in multilabel_average_precision, multilabel_auroc:
                    figure(score, label, sizes.classes, average=average)

        peers['torchmetrics'] = torchmetrics
    return Sides(floor, _finished(metric, samples), peers)


def _top_k(sizes: Sizes) -> Sides:
    k = 25
    entities = 1000
    count = sizes.searched // 10
    rng = np.random.default_rng(0)
    found = rng.permuted(np.tile(np.arange(entities), (count, 1)), axis=1)
    top = found[:, :k].copy()
    rows = np.repeat(np.arange(count), HELD_OUT)
    true = found[:, k - 5 : k - 5 + HELD_OUT].flatten()
    metric = METRICS.build(dict(type='mmrank.TopKMetric'))
    samples = [dict(top_k=torch.from_numpy(row)) for row in top]
    batch = dict(true=dict(rows=torch.from_numpy(rows), cols=torch.from_numpy(true)))
    keys = np.arange(count)[:, None] * entities + top

    def ours() -> None:
        metric.results.clear()
        metric.process(batch, samples)
        metric.compute_metrics(metric.results)

    peers = {}
    if installed('torchmetrics'):
        from torchmetrics import retrieval

        indices = torch.arange(count).repeat_interleave(k)
        score = torch.arange(k, 0, -1.0).repeat(count)
        hit = torch.from_numpy(np.isin(keys, rows * entities + true)).flatten()

        def torchmetrics() -> None:
            for at in metric.k:
                for kind in ('Precision', 'Recall', 'NormalizedDCG'):
                    figure = getattr(retrieval, f'Retrieval{kind}')(top_k=at)
                    figure.update(score, hit, indices)
                    figure.compute()

        peers['torchmetrics'] = torchmetrics
    return Sides(lambda: np.sort(keys, axis=None), ours, peers)
