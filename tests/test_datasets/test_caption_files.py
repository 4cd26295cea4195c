"""Readers of caption files, and captions that are made up."""

import json

import numpy as np
import pytest

from captions import class_captions, describe_image, object_captions
from mmrank.datasets.captions.caption_files import (
    read_caption_table,
    read_coco_captions,
    read_karpathy,
)


def write(path, content):
    if not isinstance(content, str):
        content = json.dumps(content)
    path.write_text(content, encoding='utf-8')
    return path


def plain(found):
    return [tuple(image) for image in found]


TWO = [('a.jpg', ['a cat', 'one cat'], 'cat'), ('b.jpg', ['Ein Bär'], 'bear')]
FORMS = {
    'x.jsonl': '{"image": "a.jpg", "caption": "a  cat", "label": "cat"}\n'
    '{"image": "b.jpg", "caption": ["Ein Bär"], "label": "bear"}\n\n'
    '{"image": "a.jpg", "caption": "one cat", "label": "cat"}',
    'x.json': [
        dict(image='a.jpg', caption=['a cat', ' one\ncat '], label='cat'),
        dict(image='b.jpg', caption='Ein Bär', label='bear'),
    ],
    'x.tsv': 'label\timage\tcaption\ncat\ta.jpg\ta cat\r\n'
    'bear\tb.jpg\tEin Bär\ncat\ta.jpg\tone cat\n',
}


@pytest.mark.parametrize('name', FORMS)
def test_table(tmp_path, name):
    path = write(tmp_path / name, FORMS[name])
    assert plain(read_caption_table(path, label_key='label')) == TWO
    without = [(path, captions, None) for path, captions, _ in TWO]
    assert plain(read_caption_table(path)) == without


def test_names_of_the_columns(tmp_path):
    path = write(tmp_path / 'x.csv', 'filepath\ttitle\n1.jpg\ta dog\n')
    found = read_caption_table(path, 'filepath', 'title')
    assert plain(found) == [('1.jpg', ['a dog'], None)]


def test_coco(tmp_path):
    document = dict(
        images=[dict(id=i, file_name=f'{i}.jpg') for i in (7, 3, 9)],
        annotations=[
            dict(id=1, image_id=3, caption='a dog'),
            dict(id=2, image_id=7, caption='a cat\n'),
            dict(id=3, image_id=3, caption='the dog'),
        ],
    )
    found = plain(read_coco_captions(write(tmp_path / 'captions.json', document)))
    assert found == [('7.jpg', ['a cat'], None), ('3.jpg', ['a dog', 'the dog'], None)]


def test_karpathy(tmp_path):
    def image(name, split, *texts, **more):
        return dict(filename=name, split=split, sentences=[dict(raw=x) for x in texts], **more)

    images = [
        image('1.jpg', 'train', 'a dog', 'the dog .'),
        image('2.jpg', 'restval', 'a cat', filepath='val2014'),
        image('3.jpg', 'test', 'me'),
    ]
    path = write(tmp_path / 'dataset_coco.json', dict(images=images))
    assert plain(read_karpathy(path, ['train', 'restval'])) == [
        ('1.jpg', ['a dog', 'the dog .'], None),
        ('val2014/2.jpg', ['a cat'], None),
    ]
    assert plain(read_karpathy(path, ['test'])) == [('3.jpg', ['me'], None)]


def image(border, centre):
    x = np.full((16, 16, 3), border, dtype=np.uint8)
    x[2:-2, 2:-2] = centre
    return x


def test_description_of_an_image():
    assert describe_image(image((20, 20, 20), (30, 0, 0)))[0] == 'dark'
    assert describe_image(image((255, 255, 255), 200)) == ('bright', 'white')
    assert describe_image(image((75, 115, 60), 128)) == ('plain', 'green')
    tiny = np.zeros((1, 1, 3), dtype=np.uint8)
    assert describe_image(tiny) == ('dark', 'black')


def test_captions_of_a_class():
    x = image((75, 115, 60), 128)
    captions = class_captions('automobile', x, 5, np.random.default_rng(0))
    assert len(set(captions)) == 5
    assert all(('car' in c) != ('automobile' in c) for c in captions)
    assert sum(c.endswith('on green') for c in captions) == 2
    assert sum(c.startswith('a plain') for c in captions) == 2
    again = class_captions('automobile', x, 5, np.random.default_rng(0))
    assert again == captions
    with pytest.raises(ValueError, match='1 to 5, got 6'):
        class_captions('cat', x, 6, np.random.default_rng(0))


def test_captions_of_objects():
    x, rng = image(0, 0), np.random.default_rng(0)
    counts = dict(person=2, orange=1, bus=12)
    caption, *_ = object_captions(counts, x, 1, rng)
    for part in ('two people', 'an orange', 'many buses', ', ', ' and '):
        assert part in caption
    assert 'a dog' in object_captions(dict(dog=1), x, 1, rng)[0]
    with pytest.raises(ValueError, match='without objects'):
        object_captions({}, x, 1, rng)
