"""The command line of the calibration: files, messages, and a whole round."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip('sklearn')
from noisy_boxes import make_document, make_predictions

from mmrank.calibration.calibration_file import read_calibration, weights_digest

ROOT = Path(__file__).resolve().parents[3]
TOOL = ROOT / 'tools' / 'analysis_tools' / 'calibrate.py'


@pytest.fixture(scope='module')
def boxes(tmp_path_factory):
    """Folder of two splits: predictions of three classes, annotations."""
    pytest.importorskip('pycocotools')
    folder = tmp_path_factory.mktemp('boxes')
    for seed, name in enumerate(('val', 'test')):
        document = make_document(images=9, classes=3, objects=6, seed=seed)
        found = make_predictions(document, false=6, seed=seed)
        (folder / f'{name}.json').write_text(json.dumps(document))
        (folder / f'{name}.bbox.json').write_text(json.dumps(found))
    return folder


def write_samples(path, seed, number=3, size=900):
    """A dump of one-vs-rest scores as mmengine writes it."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-1, 2, (size, number))
    target = rng.random((size, number)) < 1 / (1 + np.exp(-logits))
    scores = torch.from_numpy(3 * logits).sigmoid().float()
    samples = [
        dict(
            pred_score=row,
            pred_label=(row > 0.5).nonzero().flatten(),
            gt_score=torch.from_numpy(labels).float(),
            img_path=f'{seed}/{i}.jpg',
            ori_shape=(8, 8),
        )
        for i, (row, labels) in enumerate(zip(scores, target))
    ]
    path.write_bytes(pickle.dumps(samples, protocol=2))
    return samples


def write_checkpoint(path, classes):
    torch.manual_seed(0)
    state = torch.nn.Linear(2, 2).state_dict()
    meta = dict(dataset_meta=dict(classes=classes))
    torch.save(dict(meta=meta, state_dict=state), path)
    return weights_digest(state)


def test_detector(boxes, tmp_path, run_script):
    classes = ('class 1', 'class 2', 'class 3')
    digest = write_checkpoint(tmp_path / 'model.pth', classes)
    val, test = ((boxes / f'{x}.bbox.json', boxes / f'{x}.json') for x in ('val', 'test'))
    words = ('--checkpoint', tmp_path / 'model.pth', '--out-dir', tmp_path / 'out', '--min-each', 3)
    status, out, err = run_script(TOOL, *val, '--test', *test, *words)
    assert (status, err) == (0, '')
    assert out.count('AP of every class is the same to the last bit.') == 2
    assert 'Without --checkpoint' not in out
    made = read_calibration(tmp_path / 'out' / 'calibration.json')
    assert made.classes == classes
    assert made.weights_sha256 == digest
    assert made.task == 'detection'
    assert made.target == 'precision at IoU 0.5'
    for name in ('val', 'test'):
        table = (tmp_path / 'out' / f'{name}.csv').read_text().splitlines()
        assert table[0] == 'class,boxes,right,D-ECE before,D-ECE after,AP before,AP after'
        assert [row.split(',')[0] for row in table[1:]] == [*classes, 'all']
        last = list(map(float, table[-1].split(',')[1:]))
        assert last[-1] == last[-2] > 0
        assert last[3] < last[2]
        note = (tmp_path / 'out' / f'{name}.md').read_text()
        assert 'In percent; 25 bins. A probability means: precision' in note
        picture = (tmp_path / 'out' / f'{name}.png').read_bytes()
        assert picture.startswith(b'\x89PNG')
    status, _, err = run_script(TOOL, *val, '--test', *val, '--out-dir', tmp_path)
    assert status == 0
    assert err.startswith('warning: the test split has images of the valid')
    assert len(err.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize('number', [1, 3])
def test_classifier(number, tmp_path, run_script):
    write_samples(tmp_path / 'val.pkl', 0, number)
    write_samples(tmp_path / 'test.pkl', 1, number)
    words = (tmp_path / 'val.pkl', '--test', tmp_path / 'test.pkl', '--out-dir', tmp_path / 'out')
    status, out, err = run_script(TOOL, *words)
    assert (status, err) == (0, '')
    assert out.count('AP of every class is the same to the last bit.') == 2
    assert 'Without --checkpoint the maps do not know their weights' in out
    made = read_calibration(tmp_path / 'out' / 'calibration.json')
    assert len(made.maps) == number
    table = (tmp_path / 'out' / 'test.csv').read_text().splitlines()
    assert table[0] == 'class,samples,right,ECE before,ECE after,AP before,AP after'
    before, after = map(float, table[-1].split(',')[3:5])
    assert after < 0.7 * before


def test_bad_input_is_one_message(boxes, tmp_path, run_script):
    samples = write_samples(tmp_path / 'samples.pkl', 0, size=60)
    for row in samples:
        row['pred_score'] = row['pred_score'].softmax(0)
    (tmp_path / 'softmax.pkl').write_bytes(pickle.dumps(samples))
    for row in samples:
        row.pop('gt_score')
        row['pred_score'] = torch.rand(3)
    (tmp_path / 'unlabelled.pkl').write_bytes(pickle.dumps(samples))
    for name, content in dict(list=[dict(a=1)], empty=[], code=[print]).items():
        (tmp_path / f'{name}.pkl').write_bytes(pickle.dumps(content))
    write_checkpoint(tmp_path / 'other.pth', ('cat', 'dog'))
    val = (boxes / 'val.bbox.json', boxes / 'val.json')
    other = ('--checkpoint', tmp_path / 'other.pth')
    for words, text in [
        ((tmp_path / 'softmax.pkl',), 'sum to 1: they are a softmax'),
        ((tmp_path / 'unlabelled.pkl',), 'neither gt_label nor gt_score'),
        ((tmp_path / 'list.pkl',), 'no predictions of a classifier'),
        ((tmp_path / 'empty.pkl',), 'has no sample: there is nothing'),
        ((tmp_path / 'code.pkl',), 'it calls builtins.print, and pred'),
        ((tmp_path / 'samples.pkl', *other), 'have 3 classes, the model 2'),
        ((val[0],), 'which annotations are needed to judge'),
        ((*val, val[1]), 'a split is one prediction file and one'),
        ((*val, '--test', tmp_path / 'samples.pkl'), 'predictions of another kind'),
    ]:
        status, out, err = run_script(TOOL, *words, '--out-dir', tmp_path / 'out')
        assert (status, out) == (2, ''), text
        assert err.startswith('error: ')
        assert text in err
        assert not (tmp_path / 'out').exists()
