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
from mmrank.errors import UserError


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


@pytest.mark.parametrize(
    ('name', 'content', 'message'),
    [
        ('x.tsv', 'a caption\thttp://x.org/1.jpg\n', "no column 'image'"),
        ('x.tsv', 'image\tcaption\n1.jpg\n', r'x\.tsv:2'),
        ('x.jsonl', '{"image": "1.jpg"}\n', r'x\.jsonl:1'),
        ('x.jsonl', '{"image": "1.jpg", "caption": " "}', r'x\.jsonl:1'),
        ('x.jsonl', '{"image": "1.jpg", "caption": []}', r'x\.jsonl:1'),
        ('x.jsonl', '{"image": "1.jpg", "caption": "a"}\noops\n', r'x\.jsonl:2 is not valid'),
        ('x.json', dict(images=[]), 'mmrank.KarpathyCaptions'),
        ('x.json', [3], 'entry 0'),
        ('x.json', [dict(image='1.jpg', caption=[7])], 'entry 0'),
    ],
)
def test_bad_tables_are_refused(tmp_path, name, content, message):
    path = write(tmp_path / name, content)
    with pytest.raises(UserError, match=message):
        read_caption_table(path)


def test_an_image_of_two_classes_is_refused(tmp_path):
    path = write(tmp_path / 'x.tsv', FORMS['x.tsv'] + 'dog\ta.jpg\ta dog\n')
    with pytest.raises(UserError, match="x.tsv:5 gives 'a.jpg' the class 'dog', .* 'cat'"):
        read_caption_table(path, label_key='label')


def coco(tmp_path, **changes):
    document = dict(
        images=[dict(id=i, file_name=f'{i}.jpg') for i in (7, 3, 9)],
        annotations=[
            dict(id=1, image_id=3, caption='a dog'),
            dict(id=2, image_id=7, caption='a cat\n'),
            dict(id=3, image_id=3, caption='the dog'),
        ],
    )
    return write(tmp_path / 'captions.json', {**document, **changes})


def test_coco(tmp_path):
    found = plain(read_coco_captions(coco(tmp_path)))
    assert found == [('7.jpg', ['a cat'], None), ('3.jpg', ['a dog', 'the dog'], None)]


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (dict(annotations=[dict(image_id=1, caption='x')]), r'annotations.0'),
        (dict(annotations=[dict(image_id=3)]), r'annotations.0'),
        (dict(images=[dict(id=3), dict(id=7)]), r'image id 3'),
        (dict(images=[dict(id=3), dict(id=3)]), r'images.1'),
        (dict(annotations={}), "no list 'annotations'"),
    ],
)
def test_bad_coco_is_refused(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        read_coco_captions(coco(tmp_path, **changes))


def karpathy(tmp_path, **first):
    def image(name, split, *texts, **more):
        return dict(filename=name, split=split, sentences=[dict(raw=x) for x in texts], **more)

    images = [
        {**image('1.jpg', 'train', 'a dog', 'the dog .'), **first},
        image('2.jpg', 'restval', 'a cat', filepath='val2014'),
        image('3.jpg', 'test', 'me'),
    ]
    return write(tmp_path / 'dataset_coco.json', dict(images=images))


def test_karpathy(tmp_path):
    path = karpathy(tmp_path)
    assert plain(read_karpathy(path, ['train', 'restval'])) == [
        ('1.jpg', ['a dog', 'the dog .'], None),
        ('val2014/2.jpg', ['a cat'], None),
    ]
    assert plain(read_karpathy(path, ['test'])) == [('3.jpg', ['me'], None)]


@pytest.mark.parametrize(
    ('first', 'split', 'message'),
    [
        ({}, 'val', "no split 'val', only"),
        (dict(sentences=[]), 'train', r'images.0'),
        (dict(sentences=['a dog']), 'train', r'images.0'),
        (dict(filename=None, filepath=None), 'train', r'images.0'),
    ],
)
def test_bad_karpathy_is_refused(tmp_path, first, split, message):
    with pytest.raises(UserError, match=message):
        read_karpathy(karpathy(tmp_path, **first), [split])


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
