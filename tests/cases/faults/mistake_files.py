"""Configs, checkpoints and data, some of them broken, that ``test_user_mistakes.py`` names."""

import json
import unicodedata
from pathlib import Path

import torch
from noisy_boxes import make_predictions
from PIL import Image
from resume_run import NoisyModel

from mmrank.datasets.shapes_coco import ShapesSpec, write_shapes_coco

ROOT = Path(__file__).parents[3]
#: A detector is trained with an annotation file.
ANN = 'det train_dataloader.dataset.ann_file=annotations/'
MINI = """\
default_scope = 'mmengine'
custom_imports = dict(imports=['resume_run'])
model = dict(type='NoisyModel')
work_dir = 'out'
train_dataloader = dict(dataset=dict(type='NoisyDataset', length=8), batch_size=2,
                        sampler=dict(type='DefaultSampler', shuffle=False))
train_cfg = dict(by_epoch=True, max_epochs=1)
optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.1))
default_hooks = dict(logger=dict(type='LoggerHook', interval=100),
                     checkpoint=dict(type='CheckpointHook'))
"""
TESTED = """\
test_dataloader = val_dataloader = dict(
    dataset=dict(type='NoisyDataset'), sampler=dict(type='DefaultSampler', shuffle=False))
test_evaluator = val_evaluator = dict(type='Distance')
test_cfg = val_cfg = dict()
"""
DETECTOR = """\
_base_ = {base!r}
model = dict(
    backbone=dict(base_channels=8),
    neck=dict(in_channels=[8, 16, 32, 64], out_channels=8),
    bbox_head=dict(in_channels=8, feat_channels=8))
classes = ('disk', 'square', 'triangle')
train_dataloader = dict(batch_size=2, num_workers=0, dataset=dict(
    data_root={root!r}, metainfo=dict(classes=classes), data_prefix=dict(img='train/')))
test_dataloader = val_dataloader = dict(num_workers=0, dataset=dict(
    data_root={root!r}, metainfo=dict(classes=classes),
    ann_file='annotations/val.json', data_prefix=dict(img='val/')))
test_evaluator = val_evaluator = dict(ann_file={root!r} + '/annotations/val.json')
train_cfg = dict(max_epochs=1)
work_dir = 'out'
"""
VOC = (
    '<annotation><filename>a.png</filename><size><width>40</width><height>30</height></size>'
    '<object><name>disk</name><bndbox><xmin>3</xmin><ymin>4</ymin><xmax>9</xmax><ymax>12</ymax>'
    '</bndbox></object></annotation>'
)
HEAD = 'image,class,xmin,ymin,xmax,ymax\n'


def write_detector(path: Path, shapes: Path) -> Path:
    """Write the config of a narrow RetinaNet on shapes; returns its path."""
    base = ROOT / 'configs/stable_ap/retinanet_r18_fpn_stable-ap_bccd.py'
    path.write_text(DETECTOR.format(base=str(base), root=str(shapes)))
    return path


def _each(key, **values):
    """A change of every entry of a part."""
    return lambda d: [x.update(values) for x in d[key]]


#: What makes a good annotation file bad, what is typed after the fix, and words of the error.
CHANGES = [
    (_each('annotations', iscrowd=1), f'{ANN}train.json', 'iscrowd'),
    # The message ends with a command that writes a cleaned file.
    (lambda d: d['annotations'].append(None), '{cleaned}', 'is a NoneType, not an object'),
    (lambda d: d['images'][0].update(id=True), '{cleaned}', 'id is True'),
    (lambda d: d['categories'].clear(), '', "'categories' is an empty list"),
    (_each('images', width='64'), '', "has width '64'"),
    (lambda d: d['categories'][0].update(name='disc'), '', 'disk'),
]
#: Label files of other forms: the name of a file, what is in it, and words of the error.
LABELS = [
    ('a.txt', '0 12 12 5 5', 'line 1 reaches to', 'fractions of the sides'),
    ('a.txt', '3 0.5 0.5 0.1 0.1', 'class 3 is none of 0 to 2'),
    ('a.txt', 'disk 0.5 0.5 0.1 0.1', "'disk' is not a number"),
    ('a.txt', '0 0.5 0.5 0 0.1', 'a.txt, line 1: a box from', 'is not in a.png'),
    ('a.txt', '0 0.1 0.1 0.2 0.1 0.2 0.2 0.1', 'has 8 numbers'),
    ('z.txt', '0 0.5 0.5 0.1 0.1', 'z.txt has no image z.jpg'),
    ('a.xml', VOC[:-30], 'a.xml is not XML'),
    ('a.xml', VOC.replace('bndbox', 'box'), 'object 1 lacks its name or bndbox'),
    ('a.xml', VOC.replace('>40<', '>400<'), 'the size is 400 x 30'),
    ('a.xml', VOC.replace('>9<', '>90<'), 'to (90, 12) is not in a.png'),
    ('a.xml', VOC.replace('>9<', '>1<'), 'corner left of'),
    ('a.csv', 'image,x,label\na.png,1,disk\n', 'has the columns image, x, label'),
    ('a.csv', HEAD.replace(',', ';') + 'a.png;disk;1;2;3;4\n', 'with commas between'),
    ('a.csv', HEAD + 'a.png,disk,1,2\n', "csv:2: '' is not a number"),
    ('a.csv', HEAD + 'a.png,,1,2,8,9\n', 'has a box and no class'),
    ('a.csv', HEAD, 'and 0 rows'),
]


def _write_annotations(folder: Path) -> None:
    """Files of COCO's form, and what is in their place."""
    annotations = folder / 'shapes/annotations'
    document = json.loads((annotations / 'train.json').read_text())
    texts = {
        'predictions.json': json.dumps(make_predictions(document)),
        'none.json': json.dumps(dict(document, annotations=[])),
        'table.csv': 'image,x1,y1,x2,y2,label\n000000.png,1,2,30,40,disk\n',
    }
    for i, (change, *_) in enumerate(CHANGES):
        changed = json.loads(json.dumps(document))
        change(changed)
        texts[f'changed_{i}.json'] = json.dumps(changed)
    first = document['images'][0]
    own = dict(document, images=[first])
    own['annotations'] = [x for x in document['annotations'] if x['image_id'] == first['id']]
    names = {
        'backslash': f'sub\\{first["file_name"]}',
        'decomposed': unicodedata.normalize('NFD', 'caf\u00e9.png'),
        'percent': 'two%20words.png',
    }
    for name, file_name in names.items():
        texts[f'{name}.json'] = json.dumps(dict(own, images=[dict(first, file_name=file_name)]))
    # Splits without their images, and two files of one split.
    for name in ('lonely/train', 'lonely/val', 'twice/train', 'twice/val', 'twice/val_2'):
        texts[f'../../{name}.json'] = json.dumps(document)
    for name, text in texts.items():
        (annotations / name).parent.mkdir(exist_ok=True)
        (annotations / name).write_text(text)
    train = folder / 'shapes/train'
    pixels = (train / first['file_name']).read_bytes()
    for name in ('caf\u00e9.png', 'two words.png', f'sub/{first["file_name"]}'):
        (train / name).parent.mkdir(exist_ok=True)
        (train / name).write_bytes(pixels)


def _texts(folder: Path) -> dict[str, str]:
    """Text files by their names."""
    record = 'method,seed,step,mAP\na,0,10,0.1\n'
    plan = 'methods: [mini.py]\nout_dir: {}\n{}: [0]\nmetrics: [score]\n'
    return {
        'mini.py': MINI,
        'tested.py': MINI + TESTED,
        'taken/mini.py': MINI,
        'part.py': 'train_cfg = dict(max_epochs=1)\n',
        'broken.py': 'model = dict(\n',
        'inherits.py': "_base_ = 'no_base.py'\n",
        'inherits_name.py': "_base_ = 'mmrank::stable_ap/x.py'\n",
        'loop_a.py': "_base_ = 'loop_b.py'\n",
        'loop_b.py': "_base_ = ['loop_a.py']\n",
        'junk.pth': 'junk',
        'folder.pkl/a.txt': '',
        'broken.yaml': 'methods: [\n',
        'good.yaml': plan.format('seeds', 'seeds'),
        'plan.yaml': plan.format('out', 'seedz'),
        'pairs/train.csv': 'user,item\n' + ''.join(f'{u},{i}\n' for u in 'abc' for i in range(12)),
        'runs/20260101_000000/vis_data/scalars.json': '{"loss": 1.0, "iter": 1, "step": 1}\n',
        'torn.csv': f'{record}a,1,10,0.2',
        'twice.csv': f'{record}a,0,10,0.2\n',
        'nan.csv': record.replace('0.1', 'nan'),
        'own/names.txt': 'disk\nsquare\ntriangle\n',
        **{f'own/{i}/{name}': text for i, (name, text, *_) in enumerate(LABELS)},
    }


def write_files(folder: Path) -> None:
    """Write all of them into an empty folder."""
    write_shapes_coco(folder / 'shapes', ShapesSpec(4, 2, 0, 64, 64, 3, max_size=32))
    _write_annotations(folder)
    for name, text in _texts(folder).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    write_detector(folder / 'det.py', folder / 'shapes')
    (folder / 'own/img').mkdir()
    Image.new('RGB', (40, 30)).save(folder / 'own/img/a.png')
    good, other = NoisyModel().state_dict(), dict(bias=torch.ones(1))
    for name, state in (('good', good), ('other', other), ('taken/epoch_1', good)):
        content = dict(meta=dict(epoch=0, iter=0), state_dict=state, message_hub={})
        torch.save(content, folder / f'{name}.pth')
    torch.save(good, folder / 'weights.pth')
    torch.save([], folder / 'list.pth')
