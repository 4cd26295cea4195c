"""Figures within a budget of false alarms: against pycocotools' matches, counts, scikit-learn."""

import numpy as np
import pytest
from noisy_boxes import make_document, make_predictions
from sklearn.metrics import precision_recall_curve

from mmrank.errors import UserError
from mmrank.evaluation.box_evaluation import evaluate_boxes, match_boxes
from mmrank.evaluation.coco_index import coco_index
from mmrank.evaluation.operating_points import (
    FIGURES,
    Matches,
    figures_at,
    figures_of,
    froc,
    matches_by_class,
    parse_figure,
    pool,
)

CASES = range(300)


def case(seed):
    """A small document and boxes: ties, crowds, without objects or boxes, of one class."""
    rng = np.random.default_rng(seed)
    sizes = dict(images=rng.integers(1, 6), classes=rng.integers(1, 4))
    document = make_document(seed, objects=rng.choice([0, 1, 4]), **sizes)
    for ann in document['annotations']:
        ann['iscrowd'] = int(rng.random() < 0.15)
    noise = rng.choice([0.0, 0.1, 0.2])
    boxes = make_predictions(document, seed, noise, false=rng.integers(0, 4), missed=0.2)
    # Second boxes on objects, in any order.
    boxes += [{**x, 'score': rng.random()} for x in boxes if rng.random() < 0.4]
    rng.shuffle(boxes)
    digits = rng.choice([1, 3])
    return document, [{**box, 'score': round(box['score'], digits)} for box in boxes]


def counted(evaluation, cat_id, iou_index):
    """Scores and matches of a class as pycocotools keeps them, and its objects."""
    scores, right, objects = [], [], 0
    for image in evaluation.evalImgs:
        if image is None or image['category_id'] != cat_id or image['aRng'] != [0, 1e10]:
            continue
        for score, match, ignored in zip(
            image['dtScores'], image['dtMatches'][iou_index], image['dtIgnore'][iou_index]
        ):
            if not ignored:
                scores.append(score)
                right.append(match > 0)
        objects += sum(not x for x in image['gtIgnore'])
    return np.array(scores, dtype=float), np.array(right, dtype=bool), objects


def by_count(scores, right, objects, images, figure):
    """The best of all thresholds, each tried."""
    if not objects:
        return np.nan
    kind, limit = parse_figure(figure)
    best = 0.0
    for threshold in scores:
        hits = sum(right[scores >= threshold])
        shown = sum(scores >= threshold)
        fits = {'recall@fp': (shown - hits) / images <= limit, 'recall@p': hits / shown >= limit}
        value = 2 * hits / (shown + objects) if kind == 'f1' else hits / objects
        if fits.get(kind, True):
            best = max(best, value)
    return best


@pytest.mark.parametrize('seed', CASES)
def test_figures_are_those_of_a_count_and_of_scikit_learn(seed):
    document, boxes = case(seed)
    evaluation = match_boxes(coco_index(document), boxes)
    images = len(document['images'])
    figures = (*FIGURES, 'recall@fp0.5', 'recall@p0.5')
    for iou_index, iou in ((0, 0.5), (5, 0.75)):
        matches = matches_by_class(evaluation, iou)
        assert [*matches] == [x['id'] for x in document['categories']]
        parts = {x: counted(evaluation, x, iou_index) for x in matches}
        scores, right, numbers = zip(*parts.values())
        parts['all'] = np.concatenate(scores), np.concatenate(right), sum(numbers)
        matches['all'] = pool(matches.values())
        for name, (scores, right, objects) in parts.items():
            own = matches[name]
            assert (own.num_objects, own.num_images) == (objects, images)
            assert sorted(zip(own.scores, own.is_right)) == sorted(zip(scores, right))
            found = figures_of(own, figures)
            for figure, (value, score) in found.items():
                expected = by_count(scores, right, objects, images, figure)
                assert value == pytest.approx(expected, abs=1e-12, nan_ok=True)
                if np.isfinite(score):
                    at = figures_at([(own, score)])
                    assert at['f1' if figure == 'f1' else 'recall'] == pytest.approx(value)
            if not right.any():
                continue
            curve = froc(own)
            precision, recall, thresholds = precision_recall_curve(right, scores)
            np.testing.assert_array_equal(curve.scores, thresholds[::-1])
            np.testing.assert_allclose(curve.precision, precision[-2::-1])
            np.testing.assert_allclose(curve.recall, recall[-2::-1] * right.sum() / objects)
            wrong = [sum(scores[~right] >= x) for x in curve.scores]
            np.testing.assert_allclose(curve.false_alarms, np.array(wrong) / images)


def test_the_order_of_a_file_counts_for_nothing():
    scores = np.array([0.9, 0.5, 0.5, 0.5])
    for right in ([1, 1, 0, 0], [1, 0, 0, 1]):
        matches = Matches(scores, np.array(right, bool), np.arange(4), 2, 1)
        # The second object comes with two false alarms, in whatever order.
        found = figures_of(matches, ['recall@fp1', 'recall@fp2', 'recall@p0.9', 'f1'])
        assert [x for x, _ in found.values()] == [0.5, 1.0, 0.5, pytest.approx(2 / 3)]
        assert [x for _, x in found.values()] == [0.9, 0.5, 0.9, 0.9]


def test_thresholds_of_classes_add_up():
    one = Matches(np.array([0.9, 0.2]), np.array([True, False]), np.arange(2), 2, 4)
    two = Matches(np.array([0.7, 0.6]), np.array([False, True]), np.arange(2), 1, 4)
    found = figures_at([(one, 0.5), (two, 0.6)])
    assert found == pytest.approx(dict(precision=2 / 3, recall=2 / 3, f1=2 / 3, false_alarms=0.25))
    assert np.isnan(figures_at([(one, np.inf)])['precision'])


@pytest.mark.parametrize('name', ['recall@fp', 'recall@p90', 'precision', 'recall@fp-1'])
def test_an_unknown_figure_is_named(name):
    with pytest.raises(UserError, match=f'{name!r} is unknown.*Fix: recall, f1, recall@fp1'):
        parse_figure(name)


def test_the_command(shapes, run, tmp_path):
    _, ann_file, truth, models = shapes
    out = tmp_path / 'froc.png'
    words = [ann_file, *(f'{name}={path}' for name, path in models.items()), '--out', out]
    run('analysis_tools/plot_froc', *words, '--at', 'recall@p0.9', '--iou', 0.6)
    assert out.stat().st_size > 5_000
    table = out.with_suffix('.md').read_text()
    good = matches_by_class(evaluate_boxes(truth, models['good']), 0.6)
    value, score = figures_of(pool(good.values()), ['recall@fp1'])['recall@fp1']
    assert f'recall@fp1 | {100 * value:.1f} at {score:.3g} |' in table
