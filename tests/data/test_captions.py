"""Captions: files, data sets, pipelines, the converter, and captions that are made up."""

import json
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest
from image_files import encoded, write_files
from mmengine.registry import DATASETS
from retrieval_trees import write_images

from captions import captions_of, class_words, describe_image, object_words
from mmrank.datasets.captions.caption_files import read_caption_table, read_karpathy

pytest.importorskip('mmpretrain')
from mmpretrain.utils import register_all_modules

from mmrank.datasets.samplers import InBatchPairSampler
from mmrank.errors import UserError
from mmrank.registry import TRANSFORMS

ENTRIES = [
    ('a.png', ['a cat', 'the cat'], 'cat'),
    ('b.png', ['a dog', 'the cat', 'a dog'], 'dog'),
    ('c.png', ['a cat'], 'cat'),
]
PACK = dict(
    type='mmpretrain.PackInputs',
    algorithm_keys=['text'],
    meta_keys=['sample_idx', 'image_id', 'text_id'],
)


@pytest.fixture
def folder(tmp_path):
    write_images(tmp_path, [name for name, *_ in ENTRIES])
    lines = [json.dumps(dict(image=i, caption=c, label=x)) for i, c, x in ENTRIES]
    write(tmp_path / 'train.jsonl', '\n'.join(lines))
    images = [
        dict(filename=i, split='test', sentences=[dict(raw=x) for x in c]) for i, c, _ in ENTRIES
    ]
    write(tmp_path / 'karpathy.json', dict(images=images))
    # Ids that fall, captions in another order than images, and an image without one.
    images = [dict(id=9 - n, file_name=i) for n, (i, *_) in enumerate(ENTRIES)]
    captions = [dict(image_id=9 - n, caption=f'{x}\n') for n in (2, 0, 1) for x in ENTRIES[n][1]]
    document = dict(images=[*images, dict(id=3, file_name='d.png')], annotations=captions)
    write(tmp_path / 'coco.json', document)
    return tmp_path


def build(folder, **kwargs):
    config = dict(type='mmrank.CaptionTable', data_root=str(folder), ann_file='train.jsonl')
    return DATASETS.build({**config, **kwargs})


KINDS = {
    'table': dict(),
    'karpathy': dict(type='mmrank.KarpathyCaptions', ann_file='karpathy.json', split='test'),
    'coco': dict(type='mmrank.COCOCaptions', ann_file='coco.json'),
}


@pytest.mark.parametrize('kind', KINDS)
def test_items_are_pairs_in_training_and_images_in_testing(folder, kind):
    data = build(folder, **KINDS[kind])
    found = [(Path(x['img_path']).name, x['text'], x['image_id'], x['text_id']) for x in data]
    assert found == [
        ('a.png', 'a cat', 0, 0),
        ('a.png', 'the cat', 0, 1),
        ('b.png', 'a dog', 1, 2),
        ('b.png', 'the cat', 1, 1),
        ('b.png', 'a dog', 1, 2),
        ('c.png', 'a cat', 2, 0),
    ]
    data = build(folder, test_mode=True, **KINDS[kind])
    assert [x['text'] for x in data] == [c for _, c, _ in ENTRIES]
    assert [x['text_id'] for x in data] == [[0, 1], [2, 1, 2], [0]]


def test_classes(folder):
    data = build(folder, label_key='label', test_mode=True)
    assert data.metainfo['classes'] == ('cat', 'dog')
    assert [x['gt_label'] for x in data] == [0, 1, 0]
    data = build(folder, label_key='label', classes=['dog', 'bear', 'cat'], unit='image')
    assert [x['gt_label'] for x in data] == [2, 0, 2]
    with pytest.raises(UserError, match="has the class 'dog'"):
        build(folder, label_key='label', classes=['cat'])
    with pytest.raises(ValueError, match="unit='caption' is unknown"):
        build(folder, unit='caption')


def test_pairs_of_a_two_tower(folder):
    with pytest.raises(UserError, match='1 captions repeat another of the same image'):
        _ = build(folder).interactions
    table = folder / 'train.jsonl'
    entries = [json.loads(line) for line in table.read_text().splitlines()]
    for entry in entries:
        entry['caption'] = [*dict.fromkeys(entry['caption'])]
    table.write_text('\n'.join(map(json.dumps, entries)))
    data = build(folder)
    assert len(data) == 5
    pairs = data.interactions
    assert pairs.shape == (3, 3)
    assert pairs.rows.tolist() == [0, 0, 1, 1, 2]
    assert pairs.cols.tolist() == [0, 1, 1, 2, 0]
    sampler = InBatchPairSampler(data, batch_size=2, seed=0)
    drawn = list(sampler)
    assert len(drawn) == len(set(drawn)) == 4
    with pytest.raises(ValueError, match="unit='image' has no pairs"):
        _ = build(folder, unit='image').interactions


def test_random_caption(folder):
    register_all_modules(init_default_scope=False)
    pipeline = [dict(type='mmpretrain.LoadImageFromFile'), dict(type='mmrank.RandomCaption'), PACK]
    data = build(folder, pipeline=pipeline, unit='image')
    samples = [data[1]['data_samples'] for _ in range(40)]
    found = {(x.text, x.text_id) for x in samples}
    assert found == {('a dog', 2), ('the cat', 1)}
    transform = TRANSFORMS.build(dict(type='mmrank.RandomCaption'))
    with pytest.raises(ValueError, match="text='a' is one caption.* Fix: unit='image'"):
        transform(dict(text='a', text_id=3))


CONVERT = 'dataset_converters/make_captions'


def test_converter_of_classes(tmp_path, run):
    rng = np.random.default_rng(0)
    members = [
        (f'{split}/{name}/{i}.png', encoded(rng.integers(0, 255, (8, 8, 3))))
        for split, number in (('train', 9), ('test', 3))
        for name in ('ship', 'cat')
        for i in range(number)
    ]
    source = write_files(tmp_path / 'images', members)
    out = tmp_path / 'out'
    options = ['--size', 4, '--per-class', 6, '--imbalance', 3]
    run(CONVERT, source, out, *options, '--val-per-class', 2)
    data = build(out, label_key='label', test_mode=True)
    assert [x['gt_label'] for x in data] == [0] * 6 + [1] * 2
    for item in data:
        assert len(set(item['text'])) == 2
        words = ('cat',) if item['gt_label'] == 0 else ('ship', 'boat')
        assert all(any(w in t for w in words) for t in item['text'])
    assert cv2.imread(data[0]['img_path']).shape == (4, 4, 3)
    for part in ('val', 'test'):
        assert len(build(out, ann_file=f'{part}.jsonl', unit='image')) == 4
    words = ['--per-class', 9, '--val-per-class', 2]
    assert 'lower --per-class' in run(CONVERT, source, out, *words, status=2)


def test_converter_of_coco(folder, run):
    document = json.loads((folder / 'coco.json').read_text())
    document['categories'] = [dict(id=5, name='dog')]
    document['images'].pop()
    for number, image in enumerate(document['images']):
        image.update(id=number, width=8, height=8)
    # Of one name but for the folder.
    (folder / 'sub').mkdir()
    (folder / 'b.png').rename(folder / 'sub/a.png')
    document['images'][1]['file_name'] = 'sub/a.png'
    box = dict(category_id=5, bbox=[1, 1, 4, 4], area=16, iscrowd=0)
    images = (0, 0, 1, 2)
    document['annotations'] = [dict(box, id=i, image_id=x) for i, x in enumerate(images, 1)]
    source = folder / 'boxes.json'
    source.write_text(json.dumps(document))
    out = folder / 'out'
    run(CONVERT, source, out, '--images', folder)
    data = build(out, unit='image')
    assert all('two dogs' in x for x in data[0]['text'])
    parts = [build(out, unit='image', ann_file=file.name) for file in out.glob('*.jsonl')]
    assert len({x['img_path'] for part in parts for x in part}) == 3
    assert '--images' in run(CONVERT, source, out, status=2)


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
def test_each_form_of_a_table_is_read(tmp_path, name):
    path = write(tmp_path / name, FORMS[name])
    assert plain(read_caption_table(path, label_key='label')) == TWO
    without = [(path, captions, None) for path, captions, _ in TWO]
    assert plain(read_caption_table(path)) == without


def test_names_of_the_columns(tmp_path):
    path = write(tmp_path / 'x.csv', 'filepath\ttitle\n1.jpg\ta dog\n')
    found = read_caption_table(path, 'filepath', 'title')
    assert plain(found) == [('1.jpg', ['a dog'], None)]


def test_splits_and_folders_of_karpathy(tmp_path):
    places = [('1.jpg', 'train', {}), ('2.jpg', 'restval', dict(filepath='val2014'))]
    images = [
        dict(filename=name, split=split, sentences=[dict(raw='a dog')], **folder)
        for name, split, folder in [*places, ('3.jpg', 'test', {})]
    ]
    path = write(tmp_path / 'dataset_coco.json', dict(images=images))
    found = read_karpathy(path, ['train', 'restval'])
    assert [image.path for image in found] == ['1.jpg', 'val2014/2.jpg']


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
    describe = partial(class_words, 'automobile')
    captions = captions_of(describe, x, 5, np.random.default_rng(0))
    assert len(set(captions)) == 5
    assert all(('car' in c) != ('automobile' in c) for c in captions)
    assert sum(c.endswith('on green') for c in captions) == 2
    assert sum(c.startswith('a plain') for c in captions) == 2
    assert captions_of(describe, x, 5, np.random.default_rng(0)) == captions


def test_captions_of_objects():
    rng = np.random.default_rng(0)
    caption = object_words(dict(person=2, orange=1, bus=12), rng)
    for part in ('two people', 'an orange', 'many buses', ', ', ' and '):
        assert part in caption
    assert object_words(dict(dog=1), rng) == 'a dog'
