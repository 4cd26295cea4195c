"""Fitted maps compared with scikit-learn; boxes judged as COCO does, AP equal to the last bit."""

import json

import numpy as np
import pytest
import torch

pytest.importorskip('sklearn')
pytest.importorskip('pycocotools')
from noisy_boxes import make_document, make_predictions, write_json
from pycocotools.coco import COCO

from calibration.box_split import BoxSplit
from calibration.fitting import fit_calibration
from calibration.splits import JudgedScores, as_float32
from mmrank.errors import UserError
from mmrank.evaluation.box_evaluation import evaluate_boxes
from mmrank.evaluation.operating_points import matches_by_class


def made_up(counts=(900, 400), slope=2.0, offset=-1.0, seed=0):
    """Boxes whose true probability is a Platt map of their score."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(counts)), counts)
    logits = rng.normal(0, 2, len(labels))
    scores = (1 / (1 + np.exp(-logits))).astype(np.float32)
    # Of the second class higher.
    chance = 1 / (1 + np.exp(-(slope * logits + offset + labels)))
    right = rng.random(len(labels)) < chance
    return JudgedScores(
        'detection',
        tuple(f'class {i}' for i in range(len(counts))),
        torch.from_numpy(scores),
        torch.from_numpy(labels),
        torch.from_numpy(right),
    )


def test_isotonic_map_is_that_of_scikit_learn():
    from sklearn.isotonic import IsotonicRegression

    judged = made_up()
    found = fit_calibration(judged)
    new = torch.rand(300, generator=torch.Generator().manual_seed(0))
    for label in range(2):
        mine = judged.labels == label
        fitted = IsotonicRegression(out_of_bounds='clip').fit(
            judged.scores[mine].double().numpy(), judged.is_right[mine].double().numpy()
        )
        got = found.probabilities(new, torch.full((300,), label))
        expected = fitted.predict(new.double().numpy())
        assert got.numpy() == pytest.approx(expected, abs=1.1e-6)


def test_rare_classes_get_the_map_of_all():
    judged = made_up((900, 400, 3, 0))
    found = fit_calibration(judged)
    assert [x.pooled for x in found.maps] == [False, False, True, True]
    assert found.maps[2].scores == found.maps[3].scores
    assert found.maps[3].count == found.maps[3].positives == 0
    shared = fit_calibration(judged, pooled=True)
    assert {x.scores for x in shared.maps} == {found.maps[2].scores}
    own = fit_calibration(judged, min_each=1)
    right = judged.is_right[judged.labels == 2]
    assert own.maps[2].pooled == bool(right.all() or not right.any())


def test_scores_that_fall_get_a_flat_map_that_keeps_their_order():
    flat = fit_calibration(made_up(slope=-2.0))
    got = flat.probabilities(torch.tensor([0.2, 0.8]), torch.tensor([0, 0]))
    assert got[0] < got[1] < got[0] + 1e-6


@pytest.mark.parametrize(('is_right', 'word'), [(False, 'no'), (True, 'every')])
def test_nothing_to_fit_is_one_message(is_right, word):
    judged = made_up((20,))
    same = torch.full((20,), is_right)
    judged = JudgedScores('detection', ('a',), judged.scores, judged.labels, same)
    with pytest.raises(UserError, match=f'{word} box .* is right, of 20'):
        fit_calibration(judged)


@pytest.mark.parametrize(
    ('scores', 'text'),
    [
        ([0.5, 1.25], r'are from 0.5 to 1.25, and must be in \[0, 1\]'),
        ([0.5, float('nan')], 'must be in'),
        ([0.5, 0.5 + 1e-9], 'more digits than float32'),
    ],
)
def test_scores_that_cannot_be_kept(scores, text):
    with pytest.raises(UserError, match=text):
        as_float32(np.array(scores), np.zeros(2, int), 'boxes')


def test_scores_of_two_classes_may_be_close():
    assert as_float32(np.array([0.5, 0.5 + 1e-9]), np.arange(2), 'boxes').dtype == torch.float32


@pytest.fixture(scope='module')
def data():
    document = make_document(images=14, classes=3, objects=5, seed=1)
    for ann in document['annotations'][::7]:
        ann['iscrowd'] = 1
    for number, ann in enumerate(document['annotations'], -1):
        ann['id'] = number  # also where an evaluator marks an unmatched box by the id 0
    boxes = make_predictions(document, jitter=0.08, false=6, seed=1)
    # A class of one image has more boxes than COCO counts.
    rng = np.random.default_rng(0)
    for _ in range(130):
        bbox = [*rng.uniform(0, 200, 2), 30, 30]
        score = round(rng.uniform(0, 0.3), 2)
        boxes.append(dict(image_id=2, category_id=3, bbox=bbox, score=score))
    return document, boxes


def truth_of(document):
    truth = COCO()
    truth.dataset = json.loads(json.dumps(document))
    truth.createIndex()
    return truth


@pytest.fixture(scope='module')
def split(data, tmp_path_factory):
    document, boxes = data
    folder = tmp_path_factory.mktemp('split')
    (folder / 'boxes.json').write_text(json.dumps(boxes))
    (folder / 'truth.json').write_text(json.dumps(document))
    return BoxSplit.read(folder / 'boxes.json', folder / 'truth.json')


def test_boxes_are_judged_as_the_figures_count_them(data, split, tmp_path):
    document, boxes = data
    files = [write_json(tmp_path / 'truth.json', document), write_json(tmp_path / 'b.json', boxes)]
    matches = matches_by_class(evaluate_boxes(*map(str, files)))
    expected = [
        (float(np.float32(score)), label, bool(is_right))
        for label, category in enumerate((3, 6, 9))
        for score, is_right in zip(matches[category].scores, matches[category].is_right)
    ]
    judged = split.judged
    got = zip(judged.scores.tolist(), judged.labels.tolist(), judged.is_right.tolist())
    assert len(judged.scores) < len(boxes) - 20  # beyond 100, and on crowds
    assert sorted(got) == sorted(expected)
    assert judged.classes == ('class 1', 'class 2', 'class 3')


def test_ap_is_equal_to_the_last_bit(split):
    calibration = fit_calibration(split.judged, min_each=3)
    before, after = split.figures(), split.figures(calibration)
    assert before.equals(after)
    assert np.array_equal(before.by_class, after.by_class)
    assert before.mean == after.mean > 0
    assert [x.shape for x in before.details] == [(12,), (10, 101, 3, 4, 3), (10, 3, 4, 3)]
    # The scores themselves are others, also in their order over classes.
    scores = np.array([x['score'] for x in split.calibrated(calibration)])
    raw = np.array([x['score'] for x in split.boxes])
    assert np.abs(scores - raw).max() > 0.05


def test_images_of_both_splits_are_noticed(split, tmp_path):
    other = make_document(images=14, classes=3, objects=5, seed=2)
    path = write_json(tmp_path / 'boxes.json', make_predictions(other))
    assert not split.same_as(BoxSplit.read(path, truth_of(other)))
    assert split.same_as(split)


@pytest.mark.parametrize(
    ('boxes', 'classes', 'text'),
    [
        ([], None, 'have no box: there is nothing to calibrate'),
        (None, ['class 2', 'class 1', 'class 3'], 'classes class 2, class 1, class 3, the anno'),
        (None, ['cow'], 'the annotations none of them'),
        (None, ['class 1'], 'have a category_id that is not in'),
    ],
)
def test_what_does_not_fit_is_one_message(boxes, classes, text, data, tmp_path):
    document, own = data
    path = tmp_path / 'boxes.json'
    path.write_text(json.dumps(own if boxes is None else boxes))
    with pytest.raises(UserError, match=text) as caught:
        BoxSplit.read(path, truth_of(document), classes)
    assert 'Fix: ' in str(caught.value)


def test_federated_annotations_are_refused(data):
    truth = truth_of(data[0])
    truth.dataset['images'][3]['neg_category_ids'] = [3]
    with pytest.raises(UserError, match='annotations are of LVIS'):
        BoxSplit.read('boxes.json', truth)
