"""Calibration files: what is written is read, and what is wrong is named."""

import json

import pytest
import torch

from mmrank.calibration.calibration_file import (
    Calibration,
    ClassMap,
    read_calibration,
    weights_digest,
)
from mmrank.errors import UserError

ISOTONIC = Calibration(
    'detection',
    'precision at IoU 0.5',
    (
        ClassMap('cat', 5, 3, (0.1, 0.9), (0.2, 0.6)),
        ClassMap('dog', 9, 1, (0.1, 0.2, 1.0), (0.0, 0.5, 0.5), pooled=True),
    ),
    'ab' * 32,
)
OF_SAMPLES = Calibration('classification', 'share of samples with the class', ISOTONIC.maps)


@pytest.mark.parametrize(
    ('call', 'message'),
    [
        (lambda: OF_SAMPLES.columns(torch.rand(4, 3)), r'must be \(n, 2\).*cat, dog.*Fix'),
        (lambda: OF_SAMPLES.columns(torch.rand(4, 1)), r'must be \(n, 2\)'),
        (lambda: ISOTONIC.probabilities(torch.rand(2), torch.tensor([-1, 0])), 'from -1 to 0.*Fix'),
        (lambda: ISOTONIC.probabilities(torch.rand(2), torch.tensor([0, 5])), 'from 0 to 5.*Fix'),
        (lambda: ISOTONIC.probabilities(torch.rand(2), torch.tensor([0])), r'shape \(2,\)'),
        (lambda: ISOTONIC.columns(torch.tensor([[0.1, 1.5]])), r'must be in \[0, 1\].*Fix: '),
    ],
)
def test_scores_of_other_classes_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize('made', [ISOTONIC, OF_SAMPLES], ids=['boxes', 'samples'])
def test_what_is_written_is_read(made, tmp_path):
    path = made.write(tmp_path / 'new' / 'map.json')
    assert read_calibration(path) == made
    # A class is a line, for readers and for diffs.
    lines = path.read_text().splitlines()
    assert sum('"name": ' in line for line in lines) == 2
    ISOTONIC.check_names(('cat', 'dog'))
    ISOTONIC.check_weights('ab' * 32)
    OF_SAMPLES.check_weights('cd' * 32)  # its own are not known
    Calibration('classification', '', ISOTONIC.maps[1:]).check_names(['rest', 'dog'])
    for text in ('{"format": ', '[]', '"text"', '[' * 100_000, '1' * 5000, ''):
        path.write_text(text)
        with pytest.raises(UserError, match='cannot be read as a calibration file'):
            read_calibration(path)
    with pytest.raises(UserError, match='No such file.*Fix'):
        read_calibration(tmp_path / 'none.json')


def test_each_class_has_its_map():
    scores = torch.tensor([0.5, 0.5, 0.05, 1.0, 0.6])
    labels = torch.tensor([0, 1, 0, 1, 1])
    got = ISOTONIC.probabilities(scores, labels)
    expected = [0.4, 0.5, 0.2, 0.5, 0.5]
    assert got.dtype == torch.float64
    assert got.tolist() == pytest.approx(expected, abs=1e-6)
    # The plateau of the second class keeps its order.
    assert got[1] < got[4] < got[3]
    table = scores[:, None].repeat(1, 2)
    columns = ISOTONIC.columns(table)
    for label in (0, 1):
        alone = ISOTONIC.probabilities(scores, torch.full((5,), label))
        assert torch.equal(columns[:, label], alone)
    none = ISOTONIC.probabilities(scores[:0], labels[:0])
    assert none.shape == (0,)


@pytest.mark.parametrize(
    ('change', 'text'),
    [
        (lambda x: x.update(format='other'), 'does not say "format"'),
        (lambda x: x.pop('maps'), "KeyError: 'maps'"),
        (lambda x: x.update(task='pose'), "task 'pose' is not known"),
        (lambda x: x['maps'][0].update(more=1), 'TypeError'),
        (lambda x: x['maps'][0].update(scores=[0.9, 0.1]), 'does not rise'),
        (lambda x: x['maps'][0].update(probabilities=[0, 2]), 'does not rise'),
        (lambda x: x['maps'][0].update(scores=[0, 10**400]), 'OverflowError'),
        (lambda x: x.update(maps=7), 'TypeError'),
        (lambda x: x.update(maps=[]), 'it has no maps'),
        (lambda x: x['maps'][1].update(scores=[0.1]), 'does not rise'),
    ],
)
def test_damaged_files_are_one_message(change, text, tmp_path):
    path = ISOTONIC.write(tmp_path / 'map.json')
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=text) as caught:
        read_calibration(path)
    assert 'Fix: write it with tools' in str(caught.value)


def test_digest_names_the_weights():
    torch.manual_seed(0)
    layer = torch.nn.BatchNorm1d(3)
    state = layer.state_dict()
    digest = weights_digest(state)
    assert digest == weights_digest({f'module.{k}': v.clone() for k, v in reversed(state.items())})
    with torch.no_grad():
        layer.weight[1] += 1e-7
    assert weights_digest(layer.state_dict()) != digest
    half = {k: v.bfloat16() for k, v in layer.state_dict().items()}
    assert weights_digest(half) != digest
    assert len(weights_digest({'text': 'no tensor'})) == 64
