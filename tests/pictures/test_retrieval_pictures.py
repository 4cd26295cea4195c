"""Pictures of a retrieval: curves, sheets, tables and maps of embeddings."""

import csv
import re

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from mmrank.errors import UserError
from mmrank.evaluation.retrieval_features import RetrievalFeatures, save_features
from mmrank.functional import retrieval_metrics
from mmrank.pictures.embedding_maps import choose_samples
from mmrank.pictures.retrieval_report import (
    check_same_test_set,
    evaluate_features,
    plot_curves,
    write_retrieval_table,
)
from mmrank.pictures.retrieval_sheets import (
    CHOICES,
    _find_neighbours,
    _select_queries,
    _sheet_figure,
)


@pytest.fixture(scope='module')
def images(tmp_path_factory):
    """Folder of forty grey images, their shapes and modes mixed."""
    root = tmp_path_factory.mktemp('images')
    for i in range(40):
        size = [(30, 20), (20, 30), (200, 400)][i % 3]
        mode, colour = ('RGB', (5 * i,) * 3) if i % 2 else ('L', 5 * i)
        image = Image.new(mode, size, colour)
        image.save(root / f'{i}.png')
    return root


def make_features(seed=0, noise=1.0, with_gallery=False):
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(40) % 5
    labels[39] = 77  # without a positive, and without a name
    means = torch.randn(78, 6, generator=torch.Generator().manual_seed(9))
    return RetrievalFeatures(
        features=means[labels] + noise * torch.randn(40, 6, generator=g),
        labels=labels,
        in_gallery=torch.arange(40) % 3 == 0 if with_gallery else None,
        paths=[f'{i}.png' for i in range(40)],
        classes=['zebra', 'ant', 'owl', 'fox', 'a rather long class name'],
    )


@pytest.fixture
def models():
    return {'sharp | A': make_features(0, 0.5), 'blurred': make_features(1)}


def test_result_holds_the_figures(models):
    features = models['blurred']
    got = evaluate_features('x', features, recall_at=(1, 3, 39, 40))
    figures = retrieval_metrics(*features.sets())
    expected = figures.summary([1, 3, 39])
    assert got.queries == expected.pop('queries') == 39
    assert got.queries_without_positive == 1
    expected.pop('queries_without_positive')
    assert got.metrics == pytest.approx(expected)
    assert 'recall@40' not in got.metrics  # 39 others are all there are
    np.testing.assert_array_equal(got.average_precision, figures.average_precision.numpy())
    assert got.cutoffs[0] == 1
    assert got.cutoffs[-1] == 39
    assert got.cutoffs == sorted(set(got.cutoffs))
    assert got.recall_at[0] == pytest.approx(expected['recall@1'])
    assert got.recall_at[-1] == 1


def test_other_test_sets_are_refused(models):
    check_same_test_set(models)
    first = models['blurred']
    other = make_features(with_gallery=True)
    with pytest.raises(UserError, match="'b' has another gallery"):
        check_same_test_set({'a': first, 'b': other})
    other.labels[0] = 3
    with pytest.raises(UserError, match="'b' has 40 samples with other"):
        check_same_test_set({'a': first, 'b': other})
    lonely = RetrievalFeatures(torch.eye(3), torch.arange(3))
    with pytest.raises(UserError, match='none of 3 queries'):
        evaluate_features('a', lonely)


@pytest.mark.parametrize('with_gallery', [False, True])
def test_neighbours_are_the_best_of_the_gallery(images, with_gallery):
    features = make_features(with_gallery=with_gallery)
    result = evaluate_features('m', features)
    rows = features.rows_of_queries().tolist()
    chosen = [0, 7, len(rows) - 1]
    got = [_find_neighbours(features, result, x, 6, images) for x in chosen]
    unit = torch.nn.functional.normalize(features.features.double())
    for position, found in zip(chosen, got):
        row = rows[position]
        assert found.path == images / f'{row}.png'
        scores = {
            i: float(unit[row] @ unit[i])
            for i in range(40)
            if i != row and (not with_gallery or i % 3 == 0)
        }
        best = sorted(scores, key=lambda i: -scores[i])[:6]
        assert [n.path.name for n in found.found] == [f'{i}.png' for i in best]
        assert [n.score for n in found.found] == pytest.approx([scores[i] for i in best], abs=1e-5)
        assert [n.is_right for n in found.found] == [
            bool(features.labels[i] == features.labels[row]) for i in best
        ]
        positives = sum(bool(features.labels[i] == features.labels[row]) for i in scores)
        assert found.num_positives == positives
        assert found.found[0].label == (
            'class 77' if best[0] == 39 else features.classes[best[0] % 5]
        )


def test_queries_are_chosen_by_average_precision():
    labels = np.array([0, 0, 0, 1, 1, 2, 2])
    a = np.array([0.9, 0.8, 0.1, 0.5, 0.2, np.nan, 0.3])
    b = np.array([0.9, 0.1, 0.2, 0.5, 0.9, 0.5, 0.2])
    # One of each class before the second of any.
    assert _select_queries([a], labels, 'worst', 4) == [2, 4, 6, 3]
    assert _select_queries([a, b], labels, 'differing', 2) == [1, 4]
    assert 5 not in _select_queries([a, b], labels, 'random', 99)


@pytest.mark.parametrize('how', CHOICES)
def test_equal_queries_are_chosen_at_random(how):
    ap, labels = np.ones(500), np.arange(500) // 5
    first = _select_queries([ap, ap], labels, how, 20)
    assert first == _select_queries([ap, ap], labels, how, 20)
    assert len(set(labels[first])) == 20
    assert max(first) > 250


def is_colour(pixels, colour):
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return np.abs(pixels - wanted).max(1) < 40


def test_right_is_framed_solid_and_wrong_dashed(images, models, tmp_path):
    features = models['blurred']
    result = evaluate_features('m', features)
    rows = [_find_neighbours(features, result, x, 7, images) for x in (3, 11, 20)]
    axes = np.reshape(_sheet_figure(rows, 'title').axes, (3, 8))
    seen = set()
    for row, line in zip(rows, axes):
        for neighbour, axis in zip(row.found, line[1:]):
            (frame,) = axis.patches
            mark = axis.texts[0].get_text()[0]
            dashed = frame.get_linestyle() != '-' and frame.get_linestyle() != 'solid'
            expected = (False, '✓') if neighbour.is_right else (True, '✗')
            assert (dashed, mark) == expected
            seen.add((neighbour.is_right, frame.get_edgecolor()))
    assert len(seen) == 2
    path = tmp_path / 'sheet.png'
    _sheet_figure(rows, 'title').savefig(path)
    pixels = np.asarray(Image.open(path).convert('RGB')).astype(int).reshape(-1, 3)
    green, red = (is_colour(pixels, c).sum() for c in ('#009E73', '#D55E00'))
    assert min(green, red) > 200


def test_sheets_cannot_be_drawn_without_images(models, tmp_path):
    features = models['blurred']
    result = evaluate_features('m', features)
    row = _find_neighbours(features, result, 0, 2, tmp_path)
    with pytest.raises(FileNotFoundError, match='0.png.*--image-root'):
        _sheet_figure([row], '')


def test_curves_are_drawn(models, tmp_path):
    results = [evaluate_features(*x) for x in models.items()]
    several = plot_curves(results, tmp_path / 'new')
    for one, more in zip(plot_curves(results[:1], tmp_path), several, strict=True):
        blue = []
        for path in (more, one):
            pixels = np.asarray(Image.open(path).convert('RGB')).astype(int).reshape(-1, 3)
            blue.append(is_colour(pixels, '#0072B2').sum())
        assert blue[0] > 200
        assert blue[1] == 0


def test_a_table_has_the_figures(models, tmp_path, capsys):
    results = [evaluate_features(*x) for x in models.items()]
    markdown, table = write_retrieval_table(results, tmp_path / 'new', Console())
    lines = markdown.read_text().splitlines()
    assert lines[2] == '| method | mAP | R-Precision | MAP@R | R@1 | R@10 |'
    value = 100 * results[0].metrics['mAP']
    assert lines[4].startswith(f'| sharp \\| A | **{value:.2f}** |')
    assert '1 queries without a positive' in lines[-1]
    with open(table, newline='') as file:
        rows = list(csv.DictReader(file))
    assert float(rows[1]['mAP']) == results[1].metrics['mAP']
    assert rows[1]['gallery_size'] == '40'
    shown = capsys.readouterr().out
    assert shown.startswith('39 queries in a gallery of 40; 1 queries')
    assert 'sharp | A' in shown


TOOL = 'analysis_tools/embedding_map'


def test_chosen_samples_are_those_of_the_largest_classes():
    labels = np.repeat([4, 1, 7, 2], [5, 109, 2, 107])
    rows = choose_samples(labels, 2)
    assert (np.diff(rows) > 0).all()
    found, counts = np.unique(labels[rows], return_counts=True)
    assert found.tolist() == [1, 2]
    assert counts.tolist() == [100, 100]
    assert rows.tolist() == choose_samples(labels, 2).tolist()


def write(path, noise, samples=120):
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(samples) % 3
    features = torch.eye(3)[labels].repeat(1, 2) + noise * torch.randn(samples, 6, generator=g)
    return save_features(RetrievalFeatures(features, labels, classes=('ant', 'bee', 'cow')), path)


def test_a_map_says_how_pure_its_neighbourhoods_are(tmp_path, run):
    pytest.importorskip('sklearn')
    good = write(tmp_path / 'good.npz', 0.05)
    noise = write(tmp_path / 'noise.npz', 5.0)
    out = tmp_path / 'map.png'
    text = run(TOOL, f'AP={good}', f'SmoothAP={noise}', '--out', out)
    assert out.stat().st_size > 5_000
    found = re.findall(r'(\w+): of 120 .* ([\d.]+) % have .* ([\d.]+) %', text)
    purity = {name: (float(a), float(b)) for name, a, b in found}
    assert purity['AP'][0] == 100
    assert purity['AP'][1] > 95
    assert purity['SmoothAP'][0] < 70
    few = write(tmp_path / 'few.npz', 0.05, samples=60)
    error = run(TOOL, few, '--out', out, status=2)
    assert '60 samples are too few' in error
    assert 'Fix:' in error
