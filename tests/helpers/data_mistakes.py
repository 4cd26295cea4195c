"""Mistakes with data for ``test_typed_mistakes.py``: what is typed, and words of the message."""

import json
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

CHECK = 'dataset_converters/check_coco'
TO_COCO = 'dataset_converters/to_coco'
YOLO = f'{TO_COCO} own/yolo/{{}} --from yolo --images own/img --classes own/names.txt --out o.json'
VOC = f'{TO_COCO} own/voc/{{}} --from voc --images own/img --out o.json'
CSV = f'{TO_COCO} own/{{}}.csv --from csv --images own/img --out o.json'
GOOD_VOC = (
    '<annotation><filename>a.png</filename><size><width>40</width><height>30</height></size>'
    '<object><name>disk</name><bndbox><xmin>3</xmin><ymin>4</ymin><xmax>9</xmax><ymax>12</ymax>'
    '</bndbox></object></annotation>'
)
HEAD = 'image,class,xmin,ymin,xmax,ymax\n'


def _each(key, **values):
    """A change of every entry of a part."""
    return lambda d: [x.update(values) for x in d[key]]


def _first(key, **values):
    return lambda d: d[key][0].update(values)


def _without(key, name):
    return lambda d: [x.pop(name) for x in d[key]]


def _scaled(document):
    for ann in document['annotations']:
        ann['bbox'] = [x * 4 for x in ann['bbox']]


#: Changes of a good file, and words of the message when it is trained on and when it is checked;
#: more of them are in test_coco_check.py.
FILES = {
    'empty_categories': (lambda d: d['categories'].clear(), "'categories' is an empty list"),
    'no_annotations': (lambda d: d['annotations'].clear(), 'no object'),
    'images_as_dict': (lambda d: d.update(images={}), 'images is a dict, not a list'),
    'nulls': (lambda d: d['annotations'].append(None), 'is a NoneType, not an object'),
    'no_size': (_without('images', 'height'), "has no 'height'"),
    'text_size': (_each('images', width='64'), "has width '64'"),
    'blank_name': (_each('images', file_name=' '), 'is empty'),
    'bool_id': (_first('images', id=True), 'id is True'),
    'list_id': (_first('images', id=[1]), 'id is [1]'),
    'null_annotation_id': (_first('annotations', id=None), 'id is None'),
    'one_category_id': (_each('categories', id=1), 'duplicate category id'),
    'null_category_name': (_first('categories', name=None), 'is {'),
    'text_image_id': (_each('annotations', image_id='1'), 'unknown image id'),
    'text_category_id': (_each('annotations', category_id='1'), 'unknown category id'),
    'text_box': (_each('annotations', bbox='1 2 3 4'), "bbox is '1 2 3 4'"),
    'huge_box': (_each('annotations', bbox=[1, 2, 1e12, 4]), 'box of impossible size'),
    'scaled_boxes': (_scaled, 'box outside the image'),
    'no_area': (_without('annotations', 'area'), "no 'area'"),
    'text_crowd': (_each('annotations', iscrowd='no'), "iscrowd is 'no'"),
    'crowds': (_each('annotations', iscrowd=1), 'iscrowd'),
    'other_classes': (lambda d: d['categories'][0].update(name='disc'), 'disk'),
    'no_files': (lambda d: [x.update(file_name=f'x{x["id"]}.png') for x in d['images']], 'missing'),
}
#: Of these check_coco says something without an error: they are files for another purpose.
FINE_ALONE = ('no_annotations', 'crowds', 'other_classes', 'no_files')

LABELS = {
    'yolo': {
        'pixels': ('0 12 12 5 5', 'line 1 reaches to', 'fractions of the sides'),
        'corners': ('0 0.8 0.8 0.9 0.9', 'reaches to'),
        'confidence': ('0 0.5 0.5 0.1 0.1 0.9', 'has 6 numbers', 'without confidence'),
        'from_1': ('3 0.5 0.5 0.1 0.1', 'class 3 is none of 0 to 2'),
        'words': ('disk 0.5 0.5 0.1 0.1', "'disk' is not a number"),
        'commas': ('0,0.5,0.5,0.1,0.1', 'is not a number'),
        'decimal_commas': ('0 0,5 0,5 0,1 0,1', "'0,5' is not a number"),
        'short': ('0 0.5 0.5', 'has 3 numbers'),
        'minus': ('-1 0.5 0.5 0.1 0.1', 'class -1 is none'),
        'half': ('0.5 0.5 0.5 0.1 0.1', 'class 0.5 is none'),
        'nan': ('0 nan 0.5 0.1 0.1', "'nan' is not a number"),
        'infinite': ('0 0.5 0.5 inf 0.1', "'inf' is not a number"),
        'flat': ('0 0.5 0.5 0 0.1', 'a.txt, line 1: a box from', 'is not in a.png'),
        'odd_polygon': ('0 0.1 0.1 0.2 0.1 0.2 0.2 0.1', 'has 8 numbers'),
        'no_picture': ('0 0.5 0.5 0.1 0.1', 'z.txt has no image z.jpg'),
    },
    'voc': {
        'cut': (GOOD_VOC[:-30], 'a.xml is not XML'),
        'entities': ('<!DOCTYPE a [<!ENTITY b "c">]>' + GOOD_VOC, 'defines entities'),
        'json': ('{}', 'is not XML'),
        'nothing': ('', 'is not XML'),
        'no_box': (GOOD_VOC.replace('bndbox', 'box'), 'object 1 lacks its name or bndbox'),
        'no_name': (GOOD_VOC.replace('name>disk</name', 'label>disk</label'), 'lacks its name'),
        'no_corner': (GOOD_VOC.replace('ymax', 'y2'), 'object 1 lacks its name or bndbox'),
        'words': (GOOD_VOC.replace('>9<', '>nine<'), "'nine' is not a number"),
        'other_size': (GOOD_VOC.replace('>40<', '>400<'), 'the size is 400 x 30'),
        'turned': (
            GOOD_VOC.replace('>40<', '>30<').replace('t>30<', 't>40<'),
            'a.png is 40 x 30, its sides swapped',
        ),
        'outside': (GOOD_VOC.replace('>9<', '>90<'), 'to (90, 12) is not in a.png'),
        'swapped': (GOOD_VOC.replace('>9<', '>1<'), 'from (2, 3) to (1, 12)', 'corner left of'),
        'no_picture': (GOOD_VOC.replace('a.png', 'z.png'), "image 'z.png' is not there"),
    },
    'csv': {
        'columns': ('image,x,label\na.png,1,disk\n', 'own/columns.csv has the columns'),
        'semicolons': (HEAD.replace(',', ';') + 'a.png;disk;1;2;3;4\n', 'with commas between'),
        'short_row': (HEAD + 'a.png,disk,1,2\n', "row 2: '' is not a number"),
        'words': (HEAD + 'a.png,disk,1,2,x,9\n', "row 2: 'x' is not a number"),
        'no_class': (HEAD + 'a.png,,1,2,8,9\n', 'has a box and no class'),
        'swapped': (HEAD + 'a.png,disk,8,9,1,2\n', 'the first corner left of'),
        'outside': (HEAD + 'a.png,disk,8,9,80,90\n', 'is not in a.png'),
        'no_picture': (HEAD + 'z.png,disk,1,2,8,9\n', "image 'z.png' is not there"),
        'empty': ('', 'and 0 rows'),
        'header_alone': (HEAD, 'and 0 rows'),
        'missing_number': (HEAD + 'a.png,disk,1,2,,9\n', "'' is not a number"),
    },
}
_FORMS = {'yolo': YOLO, 'voc': VOC, 'csv': CSV}
OPTIONS = [
    (f'{TO_COCO} own/img --from coco --images own/img --out o.json', 'choose from'),
    (f'{TO_COCO} own/img --images own/img --out o.json', '--from'),
    (f'{TO_COCO} own/none --from yolo --images own/img --out o.json', 'is not a folder', 'Fix'),
    (
        f'{TO_COCO} own/voc/cut --from csv --images own/img --out o.json',
        'is not a file. Fix: the file with',
    ),
    (f'{TO_COCO} own/img --from yolo --images own/img --out o.json', 'Fix: --classes data.yaml'),
    (f'{TO_COCO} own/img --from voc --images own/img --out o.json', 'has no .xml file', 'Fix'),
    (YOLO.format('../img'), 'img has no .txt file', 'Fix'),
    (f'{TO_COCO} own/img --from voc --images own/none --out o.json', '--images', 'Fix'),
    (VOC.format('outside') + ' --classes own/other.txt', "'disk' is not in --classes: cat, dog"),
    (f'{TO_COCO} own/img --from voc --images own/voc --out o.json', 'has no image', 'Fix'),
    (f'{TO_COCO} own/words.csv --from csv --images own/img --out own/words.csv', 'is the source'),
    (YOLO.format('flat') + ' --classes no.txt', 'no.txt'),
    (YOLO.format('flat') + ' --classes photo.png', 'photo.png cannot be read', 'Fix'),
    (YOLO.format('flat') + ' --classes good.yaml', "a .yaml with 'names'", 'Fix'),
    (YOLO.format('flat') + ' --list no.txt', 'no.txt'),
    (CSV.format('header_alone') + ' --classes own/twice.txt', 'names, each once', 'Fix'),
    (f'{CHECK} own/no_size.json --fix own', 'own cannot be written: Is a directory', 'Fix'),
    (f'{CHECK} own/no_size.json own/no_area.json --fix o.json', '--fix takes one annotation file'),
    (f'{CHECK} own/no_size.json --merge o.json', '--merge takes two annotation files or more'),
    (f'{CHECK} --config det.py --fix o.json', '--fix takes one annotation file'),
    (f'{CHECK} own/one_category_id.json --fix o.json', 'cannot be cleaned', 'Fix'),
    (f'{CHECK} own/images_as_dict.json --fix o.json', 'cannot be cleaned', 'Fix'),
    (f'{CHECK} {{root}}/annotations/val.json own/no_size.json --merge o.json', "has no 'height'"),
    (
        f'{CHECK} {{root}}/annotations/val.json {{root}}/annotations/val.json --merge o.json',
        'val.json is named twice',
        'Fix: each file once',
    ),
]

#: Typed, words of the message, and the status: 1 for what is wrong in the data alone.
DATA_MISTAKES = [
    *(
        (f'det train_dataloader.dataset.ann_file={{here}}/own/{name}.json', word, 'Fix: ')
        for name, (_, word) in FILES.items()
    ),
    *(
        (f'{CHECK} own/{name}.json', word)
        for name, (_, word) in FILES.items()
        if name not in FINE_ALONE
    ),
    *(
        (_FORMS[form].format(name), *words, 'Fix: ')
        for form, labels in LABELS.items()
        for name, (_, *words) in labels.items()
    ),
    *OPTIONS,
]


def write_data_mistakes(folder: Path, document: dict) -> None:
    """Write what the mistakes name into ``own``, of the good COCO ``document``."""
    own = folder / 'own'
    (own / 'img').mkdir(parents=True)
    Image.new('RGB', (40, 30)).save(own / 'img/a.png')
    for name, (change, _) in FILES.items():
        changed = json.loads(json.dumps(document))
        change(changed)
        (own / f'{name}.json').write_text(json.dumps(changed))
    for form, ending in (('yolo', 'txt'), ('voc', 'xml')):
        for name, (text, *_) in LABELS[form].items():
            path = own / form / name / f'{"z" if name == "no_picture" else "a"}.{ending}'
            path.parent.mkdir(parents=True)
            path.write_text(text)
    for name, (text, *_) in LABELS['csv'].items():
        (own / f'{name}.csv').write_text(text)
    (own / 'names.txt').write_text('disk\nsquare\ntriangle\n')
    (own / 'other.txt').write_text('cat\ndog\n')
    (own / 'twice.txt').write_text('disk\ndisk\n')
    dark = json.loads(json.dumps(document))
    for image in dark['images']:
        name = f'dark_{image["id"]}.png'
        pixels = np.full((image['height'], image['width']), 4000, np.uint16)
        cv2.imwrite(str(folder / 'shapes/train' / name), pixels)
        image['file_name'] = name
    (own / 'dark.json').write_text(json.dumps(dark))
