"""One table of files that a reader refuses: which file, what is in it, and words of the error.

A row is the name of a file of ``test_hostile_files.READERS``, its content, words that the message
has, and settings of the reader. The content is text, bytes, a document for JSON, or a change of a
good one.
"""

import gzip
import io
import json
import os
import struct
import zipfile
from functools import partial

import numpy as np
from coco_document import make_document
from image_files import png_that_claims
from malformed_files import cifar_arrays, good_files


def put(part, index, **values):
    return lambda document: document[part][index].update(values)


set_ann = partial(put, 'annotations')
set_image = partial(put, 'images')


def drop(part, key):
    return lambda document: document[part][0].pop(key)


def leave_out(key):
    return lambda document: document.pop(key)


ZERO = 'box of zero size'
NEGATIVE = 'box of negative size'
IMPOSSIBLE = 'box of impossible size'
HUGE = 10**400
OF_NO_FLOAT = [
    (dict(bbox=[1, 2, HUGE, 8]), IMPOSSIBLE),
    (dict(bbox=[1, 2, True, 8]), 'bbox is [1, 2, True, 8]'),
    (dict(area=HUGE), IMPOSSIBLE),
    (dict(iscrowd=HUGE), 'iscrowd is 1000'),
    (dict(bbox=[[1]] * 4), 'bbox is [[1], [1]'),
    (dict(image_id=HUGE), 'image_id 1000'),
]
#: Changes of a good file with images, each of which training would not survive or not notice.
COCO = [
    (
        set_ann(1, bbox=[20, 5, -12, 12]),
        *('annotations[1]', 'id 2', '[20, 5, -12, 12]', NEGATIVE, 'width'),
    ),
    (set_ann(0, bbox=[2, 3, 10, -8]), '[2, 3, 10, -8]', NEGATIVE),
    (set_ann(0, bbox=[2, 3, 0, 8]), ZERO, '[2, 3, 0, 8]'),
    (set_ann(0, bbox=[2, float('nan'), 5, 5]), IMPOSSIBLE, 'nan'),
    (set_ann(0, bbox=[40, 3, 5, 5]), 'outside the image', 'image 40 x 30'),
    (set_ann(0, bbox=[1, 2, 3]), '[1, 2, 3]', 'four'),
    (set_ann(0, bbox=[1, 2, '3', 4]), "'3'", 'four'),
    (set_ann(0, area=0), 'area not positive', 'area is 0'),
    (set_ann(0, area=1e30), IMPOSSIBLE),
    (set_ann(0, iscrowd=7), 'iscrowd is 7'),
    *(
        (set_ann(1, **values), 'annotations[1] (id 2, image_id ', word)
        for values, word in OF_NO_FLOAT
    ),
    (set_ann(2, category_id=9), 'unknown category id', 'category_id is 9'),
    (set_ann(2, image_id=77), 'unknown image id', 'image_id 77'),
    (set_ann(2, id=1), 'duplicate annotation id', 'annotations[2]'),
    (set_ann(2, id=[1]), 'id is [1]'),
    (set_image(1, id=1), 'duplicate image id', 'images[1]', 'image_id 2'),
    (set_image(0, width=0), 'width 0'),
    (put('categories', 1, id=1), 'duplicate category id', "'cat' and 'dog'"),
    (put('categories', 1, name='cat'), 'duplicate category name'),
    (put('categories', 1, name=' '), 'malformed value', 'categories[1] is '),
    (put('categories', 1, name=7), 'malformed value', 'categories[1] is '),
    (leave_out('images'), "no 'images'"),
    (leave_out('annotations'), "no 'annotations'"),
    (leave_out('categories'), "no 'categories'"),
    (lambda d: d.update(annotations={}), 'annotations is a dict'),
    (drop('annotations', 'bbox'), "has no 'bbox'"),
    (drop('annotations', 'area'), "has no 'area'"),
    (drop('annotations', 'iscrowd'), "no 'iscrowd'"),
    (drop('images', 'file_name'), "no 'file_name'"),
    (drop('images', 'width'), "no 'width'"),
    (lambda d: d['annotations'].append(5), 'annotations[3] is a int'),
    (set_image(0, file_name='x.png'), 'missing image file', 'x.png', 'data_prefix'),
]
#: Names of images that leave their folder, and what is wrong with them.
NAMES = [
    (None, 'file_name None, which is a NoneType, not text'),
    (7, 'file_name 7, which is a int, not text'),
    ('', "file_name '', which is empty"),
    ('C:\\a.png', 'which is absolute'),
    ('../1.png', "'../1.png', which leaves its folder by '..'"),
    ('a/../../1.png', "which leaves its folder by '..'"),
    ('x' * 300, 'which has a part of 300 bytes'),
    ('a\0.png', 'which holds a null character'),
    ('\ud800.png', 'which holds a character that is not valid Unicode'),
]
PLACE = 'images[1] (id 2) has file_name '
RIGHT_NAME = 'Fix: make file_name the path of the image within'
COCO += [(set_image(1, file_name=x), PLACE, word, RIGHT_NAME) for x, word in NAMES]
#: What an image file is instead.
COCO += [
    (
        lambda d: None,
        'image id 1: ',
        '1.png cannot be opened',
        dict(image=lambda x: x.symlink_to(x)),
    ),
    (lambda d: None, '1.png is not a file', dict(image=os.mkfifo)),
    (
        lambda d: None,
        'MAX_IMAGE_PIXELS',
        dict(image=lambda x: x.write_bytes(png_that_claims(60_000, 60_000))),
    ),
]

GZIPPED = gzip.compress(b'1,2 0:1\n' * 99, mtime=0)
LATIN = '1,2 0:1\n1,\u00e9\n'.encode('latin-1')
PRODUCTS = 'image_id class_id super_class_id path\n1 1 1 a.jpg\n'
TABLE = 'image,cat,dog\n0.png,1,0\n1.png,0,1\n2.png,1,1.0\n3.png,0,0\n'


def edited(old, new, text=TABLE):
    assert old in text
    return text.replace(old, new, 1)


def arrays_that_claim(size):
    """An archive of an empty array whose directory promises a size."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, 'w') as archive:
        archive.writestr('images.npy', b'')
    data = bytearray(file.getvalue())
    place = data.rindex(b'PK\x01\x02')
    data[place + 24 : place + 28] = struct.pack('<I', size)
    return bytes(data)


GOOD = good_files()
GOOD_COCO = json.dumps(make_document()).encode()
ROWS = [
    *(('coco.json', *row) for row in COCO),
    *(('coco.json', content, word) for content, word in [
        (GOOD_COCO[: len(GOOD_COCO) // 2], 'is cut off or damaged'),
        (GOOD_COCO[: GOOD_COCO.index(b'file_na') + 5], 'is cut off or damaged'),
        (GOOD_COCO.replace(b':', b';', 1), 'line 1 column'),
        (GOOD_COCO + b'\n' + GOOD_COCO, 'Extra data'),
        (b'{"a": "\xff"}', "'utf-8' codec"),
        (b'  ', 'not JSON: its 2 bytes'),
        (b'version https://git-lfs.github.com', 'git lfs pull'),
        (b'\x1f\x8b123', 'unpack it'),
        ('{"images": ' + '[' * 100_000, 'more than about 1,000 deep'),
        (f'{{"images": [{"9" * 5000}]}}', 'Exceeds the limit'),
    ]),
    *(('plain.csv', content, *words) for content, *words in [
        ('', 'csv:1: expected user,item'),
        ('user,item\n', 'has no interaction'),
        ('a,b,1,2,3\n', 'csv:1: expected user,item'),
        ('a,x\nb\n', 'csv:2: expected 2 fields', "got ['b']"),
        ('a,x\n\nb,y,3\n', 'csv:3: expected 2 fields'),
        ('user,item,age\na,x\n', 'csv:2: expected 3 fields (user, item, age)'),
        ('a,x\n,y\n', 'csv:2: a user or item is empty'),
        ('1,2\n1,"3\n', 'csv:2: ', ' quote'),
        ('1,2\n1,"3\n' + '1,2\n' * 50_000, 'csv:2: ', ' quote'),
        (LATIN, "plain.csv cannot be read: 'utf-8'", ' 0xe9'),
    ]),
    *(('pairs.csv', content, *words, dict(min_rating=4)) for content, *words in [
        ('a,x\n', "rating '' is not a number, and min_rating=4"),
        ('a,x,1\n', 'no interaction', 'min_rating=4'),
        ('a,x,5\n\na,y,good\n', "csv:3: rating 'good'"),
        ('a,x,nan\n', "csv:1: rating 'nan'"),
    ]),
    *((name, content, f'{name} cannot be read: {word}')
      for name in ('pairs.csv.gz', 'xmc.txt.gz')
      for content, word in [(b'1,2\n', 'Not a gzipped file'), (GZIPPED[:-20], 'Compressed')]),
    *(('xmc.txt', content, *words) for content, *words in [
        ('', 'no line'),
        (LATIN, "xmc.txt cannot be read: 'utf-8'", ' 0xe9'),
        ('a,b 0:1\n', "txt:1: 'a,b 0:1", 'invalid literal'),
        ('1 0:1\n2 0\n', "txt:2: '2 0", 'feature:value'),
        ('1 -1:1\n', 'txt:1: ', 'whole numbers that rise'),
        ('1 0.5:1\n', 'txt:1: ', 'whole numbers that rise'),
        ('1 3:1 2:1\n', 'txt:1: ', 'whole numbers that rise'),
        ('1 0:x\n', 'txt:1: ', 'could not convert'),
        ('1 0:1\n2 3:1e39\n', 'txt:2: ', 'not finite'),
        (f'1 {"9" * 5000} 3\n1 0:1\n', 'txt:1: ', 'cannot be read'),
        (f'1 {"9" * 5000}:1\n', "txt:1: '1 9999"),
        ('2 3 4\n1 3:1\n', 'first line declares 3 features'),
        ('1 0:1\n', 'from 1 on, rising', dict(one_based=True)),
    ]),
    *(('captions.tsv', *row) for row in [
        ('a caption\thttp://x.org/1.jpg\n', "no column 'image'"),
        ('image\tcaption\n1.jpg\n', 'captions.tsv:2'),
        ('label\timage\tcaption\ncat\ta.jpg\ta\nbear\tb.jpg\tb\ndog\ta.jpg\tc\n',
         "captions.tsv:4 gives 'a.jpg' the class 'dog', ", " 'cat'", dict(label_key='label')),
    ]),
    *(('captions.jsonl', *row) for row in [
        ('{"image": "1.jpg", "caption": " "}', 'captions.jsonl:1'),
        ('{"image": "1.jpg", "caption": []}', 'captions.jsonl:1'),
        ('{"image": "1.jpg", "caption": "a"}\noops\n', 'captions.jsonl:2 is not valid'),
    ]),
    ('captions.json', dict(images=[]), 'mmrank.KarpathyCaptions'),
    ('captions.json', [], 'captions.json has no'),
    ('captions.json', [3], 'entry 0'),
    ('captions.json', [dict(image='1.jpg', caption=[7])], 'entry 0'),
    *(('coco_captions.json', *row) for row in [
        (put('annotations', 0, image_id=9), 'annotations[0]'),
        (drop('annotations', 'caption'), 'annotations[0]'),
        (drop('images', 'file_name'), 'image id 0'),
        (put('images', 1, id=0), 'images[1]'),
        (lambda d: d.update(annotations={}), "no list 'annotations'"),
    ]),
    *(('karpathy.json', *row) for row in [
        (lambda d: [x.update(split='test') for x in d['images']], "no split 'train', only"),
        (put('images', 0, sentences=[]), 'images[0]'),
        (put('images', 0, sentences=['a dog']), 'images[0]'),
        (put('images', 0, filename=None), 'images[0]'),
    ]),
    *(('labels.csv', *row) for row in [
        (edited('1.png,0', '1.png,-1'), "labels.csv:3: 'cat' is '-1'"),
        (edited('0.png,1', '0.png,'), "'cat' is '', not 0 or 1"),
        (edited('1.png,0,1', '1.png,0'), 'labels.csv:3: expected 3 fields'),
        (TABLE, "no column 'cow', only", dict(classes=['cow'])),
        (edited('image,', 'path,'), "no column 'image'"),
        (edited('cat,', 'image,'), 'has a column twice', 'Fix: rename'),
        ('image\n0.png\n', 'has 1 images and 0 classes'),
        ('image,cat\n', 'has 0 images and 1 classes'),
        ('image,cat,dog\n0.png,1,0\n1.png,0,0\n', 'positive of dog'),
        ('image,cat\n0.png,1\n1.png,1\n', 'no negative of cat'),
        (edited('3.png', '7.png'), '1 of 4 images ', ' are missing'),
    ]),
    *(('entries.csv', edited(old, new, GOOD['entries.csv'].decode()), word) for old, new, word in [
        ('Finding Labels', 'Labels', "has no column 'Finding Labels', only"),
        ('Hernia', 'Flu', "csv:15: 'Finding Labels' is 'Flu'"),
        ('Mass', 'No Finding|Mass', 'alone. Fix: correct this line'),
        ('1_000.png', '0_000.png', 'csv:3 lists 00000000_000.png a second time'),
        ('1_000.png', '1_000.png\n', 'csv:3: expected 12 fields'),
    ]),
    ('names.txt', '99999999_000.png\n', 'of which 1 are named twice or are not ', 'like 99999999'),
    ('names.txt', '00000002_000.png\n' * 2, 'of which 1 are ', 'like 00000002_000'),
    ('sop.txt', f'{PRODUCTS}x 4 1 a.jpg\n7 4 1\n', '2 lines', 'sop.txt:3:', 'sop.txt:4:',
     'image_id class_id super_class_id path'),
    *(('train.npz', cifar_arrays(**arrays), word) for arrays, word in [
        (dict(labels=np.arange(10)), 'labels (10,)'),
        (dict(labels=np.full(20, 10)), 'integers from 0 to 9'),
        (dict(images=np.zeros((20, 8, 8, 3))), 'float64'),
        (dict(classes=np.array(['a', 'b'])), "the classes ['a', 'b']"),
    ]),
    ('train.npz', cifar_arrays()[:-30], 'train.npz cannot be read'),
    ('train.npz', arrays_that_claim(2 * 10**9), 'more than 1,'),
]  # fmt: skip
