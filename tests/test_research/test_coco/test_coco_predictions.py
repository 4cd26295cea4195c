"""Files of predictions that must be refused, each with one clear error."""

import json

import pytest
from noisy_boxes import write_json

from mmrank.errors import UserError
from mmrank.evaluation.box_evaluation import check_predictions, load_predictions

GOOD = {'image_id': 1, 'category_id': 3, 'bbox': [0, 1, 20, 30], 'score': 0.5}


def check(*boxes):
    check_predictions(list(boxes), {1, 2}, {3, 6}, 'predictions of x')


def test_good_boxes_pass():
    check()
    check(GOOD, {**GOOD, 'bbox': [-5.0, 0.0, 0.0, 1.0], 'score': -3})


@pytest.mark.parametrize(
    ('field', 'value', 'match'),
    [
        ('image_id', 99, r'1 image_id of the predictions of x .*\[99\]'),
        ('category_id', 0, r'category_id .*\[0\].*start at 0'),
        ('bbox', [0, 0, 10], 'not always four numbers'),
        ('bbox', None, 'not always four numbers'),
        ('bbox', [0, 0, 10, 'ten'], 'not always four numbers'),
        ('score', None, 'are not finite.*index 1.*score None'),
        ('score', float('nan'), 'are not finite.*index 1.*score nan'),
        ('bbox', [0, 0, float('inf'), 1], 'are not finite'),
        ('bbox', [50, 50, -10, 5], r'negative width.*\[50, 50, -10, 5\]'),
    ],
)
def test_a_bad_field_is_named(field, value, match):
    with pytest.raises(UserError, match=match) as caught:
        check(GOOD, {**GOOD, field: value})
    assert 'Fix: ' in str(caught.value)


def test_file_is_read_and_may_be_changed(tmp_path):
    path = write_json(tmp_path / 'x.bbox.json', [GOOD])
    assert load_predictions(path) == [GOOD]
    boxes = [GOOD]
    load_predictions(boxes)[0]['id'] = 1
    assert 'id' not in GOOD


@pytest.mark.parametrize(
    ('text', 'match'),
    [
        (json.dumps({'images': []}), 'not the annotation file'),
        (json.dumps([GOOD, {'image_id': 1}]), 'keys image_id, category_id'),
        (json.dumps([GOOD, 3]), 'must be a list of objects'),
        (json.dumps([GOOD])[:-9], r'\d+ bytes\) is not JSON'),
        ('', r'0 bytes\) is not JSON'),
    ],
)
def test_a_bad_file_is_named(tmp_path, text, match):
    path = tmp_path / 'x.bbox.json'
    path.write_text(text)
    with pytest.raises(UserError, match=match) as caught:
        load_predictions(path)
    assert 'x.bbox.json' in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r'no\.json does not exist'):
        load_predictions(tmp_path / 'no.json')
