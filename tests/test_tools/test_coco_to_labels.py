"""Boxes become a table of labels."""

import json
import runpy
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / 'tools/dataset_converters/coco_to_labels.py'
DOCUMENT = dict(
    images=[
        dict(id=7, file_name='a.jpg'),
        dict(id=3, file_name='b.jpg'),
        dict(id=5, file_name='c, d.jpg'),
    ],
    categories=[dict(id=9, name='cat'), dict(id=2, name='dog')],
    annotations=[
        dict(image_id=7, category_id=2),
        dict(image_id=7, category_id=2),
        dict(image_id=5, category_id=9),
        dict(image_id=5, category_id=2),
    ],
)


def run(folder, document, monkeypatch):
    (folder / 'train.json').write_text(json.dumps(document))
    out = folder / 'train.csv'
    arguments = [str(TOOL), str(folder / 'train.json'), str(out)]
    monkeypatch.setattr('sys.argv', arguments)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(TOOL), run_name='__main__')
    return ended.value.code, out


def test_table(tmp_path, monkeypatch):
    status, out = run(tmp_path, DOCUMENT, monkeypatch)
    assert status == 0
    assert out.read_text() == ('image,cat,dog\na.jpg,0,1\nb.jpg,0,0\n"c, d.jpg",1,1\n')


@pytest.mark.parametrize(
    'change',
    [
        dict(categories=None),
        dict(annotations=[dict(image_id=8, category_id=2)]),
        dict(images=[dict(id=7)]),
    ],
)
def test_what_is_not_coco_is_one_message(change, tmp_path, monkeypatch, capsys):
    status, out = run(tmp_path, {**DOCUMENT, **change}, monkeypatch)
    assert status == 2
    assert not out.exists()
    error = capsys.readouterr().err
    assert error.startswith('error: the file lacks a part or an id of COCO')
    assert 'check_coco.py' in error
