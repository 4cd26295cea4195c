"""Labels as COCO and COCO as labels: the same boxes, and one message for what is not a label."""

import json

import pytest
from coco_document import coco_document
from label_files import voc_text, yolo_line
from PIL import Image

TOOL = 'dataset_converters/to_coco'
#: Pictures as they are shown, and boxes [x, y, width, height] of class and image.
SIZES = {'a.jpg': (40, 100), 'sub/b.png': (64, 32), 'c.png': (20, 20)}
BOXES = {'a.jpg': [('cat', [5, 10, 20, 30])], 'sub/b.png': [('dog', [0, 0, 64, 32])]}
NAMES = ('dog', 'cat')


@pytest.fixture
def place(tmp_path):
    """Folder with ``img``, of which EXIF turns one, and ``names.txt``."""
    (tmp_path / 'img/sub').mkdir(parents=True)
    (tmp_path / 'labels/sub').mkdir(parents=True)
    for name, (width, height) in SIZES.items():
        exif = Image.Exif()
        exif[0x0112] = 6 if name == 'a.jpg' else 1
        size = (height, width) if name == 'a.jpg' else (width, height)
        Image.new('RGB', size).save(tmp_path / 'img' / name, exif=exif.tobytes())
    (tmp_path / 'names.txt').write_text('\n'.join(NAMES))
    return tmp_path


def write_yolo(place):
    for name, labels in BOXES.items():
        rows = [yolo_line(NAMES.index(kind), box, SIZES[name]) for kind, box in labels]
        (place / 'labels' / name).with_suffix('.txt').write_text('\n'.join(rows) + '\n')
    return place / 'labels'


def write_voc(place, first=1):
    for name, labels in BOXES.items():
        path = (place / 'labels' / name).with_suffix('.xml')
        path.write_text(voc_text(name.rpartition('/')[2], labels, SIZES[name], first))
    return place / 'labels'


def write_csv(place, header='image,xmin,ymin,xmax,ymax,class', row=None):
    row = row or (lambda name, kind, x, y, w, h: f'{name},{x},{y},{x + w},{y + h},{kind}')
    rows = [row(name, kind, *box) for name, labels in BOXES.items() for kind, box in labels]
    (place / 'labels.csv').write_text('\n'.join([*([header] if header else []), *rows]) + '\n')
    return place / 'labels.csv'


def convert(run, place, form, source, *words, status=0):
    """Document and what the tool says."""
    out = place / 'out/train.json'
    options = ('--from', form, '--images', place / 'img', '--out', out)
    said = run(TOOL, source, *options, '--classes', place / 'names.txt', *words, status=status)
    return json.loads(out.read_text()) if out.exists() else None, ' '.join(said.split())


def boxes_of(document):
    names = {x['id']: x['file_name'] for x in document['images']}
    kinds = {x['id']: x['name'] for x in document['categories']}
    found = {}
    for ann in document['annotations']:
        label = kinds[ann['category_id']], pytest.approx(ann['bbox'], abs=1e-3)
        found.setdefault(names[ann['image_id']], []).append(label)
    return found


FORMS = {
    'yolo': ('yolo', write_yolo),
    'voc': ('voc', write_voc),
    'voc from 0': ('voc', lambda place: write_voc(place, first=0)),
    'csv': ('csv', write_csv),
    'csv without names': ('csv', lambda place: write_csv(place, header=None)),
    'csv of sizes': (
        'csv',
        lambda place: write_csv(
            place,
            'label,x,y,width,height,path',
            lambda name, kind, *box: ','.join(map(str, [kind, *box, f'img/{name}'])),
        ),
    ),
    'csv in fractions': (
        'csv',
        lambda place: write_csv(
            place,
            'ImageID,LabelName,XMin,XMax,YMin,YMax',
            lambda name, kind, x, y, w, h: (
                f'{name.rpartition("/")[2][:-4]},{kind},{x / SIZES[name][0]},'
                f'{(x + w) / SIZES[name][0]},{y / SIZES[name][1]},{(y + h) / SIZES[name][1]}'
            ),
        ),
    ),
}


@pytest.mark.parametrize('name', FORMS)
def test_each_form_has_the_same_boxes(place, run, name):
    form, write = FORMS[name]
    document, said = convert(run, place, form, write(place))
    assert boxes_of(document) == BOXES
    assert [x['name'] for x in document['categories']] == [*NAMES]
    sizes = {x['file_name']: (x['width'], x['height']) for x in document['images']}
    # YOLO knows a picture without labels as one without objects.
    wanted = SIZES if form == 'yolo' else BOXES
    assert sizes == {x: SIZES[x] for x in wanted}
    assert f'Wrote {place}/out/train.json: {len(wanted)} images' in said


def test_polygons_difficult_objects_and_empty_images(place, run):
    (place / 'labels/c.txt').write_text('1 0.1 0.1 0.6 0.1 0.6 0.6\n\n')
    document, _ = convert(run, place, 'yolo-seg', place / 'labels')
    (ann,) = document['annotations']
    assert ann['bbox'] == pytest.approx([2, 2, 10, 10])
    assert ann['area'] == pytest.approx(50)
    assert ann['segmentation'] == [pytest.approx([2, 2, 12, 2, 12, 12])]
    labels = [('cat', [1, 1, 5, 5]), ('dog', [8, 8, 4, 4])]
    (place / 'labels/c.xml').write_text(voc_text('other.jpg', labels, (0, 0), difficult=['dog']))
    document, said = convert(run, place, 'voc', place / 'labels')
    assert [x['iscrowd'] for x in document['annotations']] == [0, 1]
    assert 'class of crowds alone' in said
    head = 'image,class,x1,y1,x2,y2\nc.png,,,,,\n'
    (place / 'labels.csv').write_text(head + 'a.jpg,cat,0,0,9,9\n' * 2)
    document, said = convert(run, place, 'csv', place / 'labels.csv')
    assert [x['file_name'] for x in document['images']] == ['a.jpg', 'c.png']
    assert len(document['annotations']) == 2
    assert 'same box twice' in said


@pytest.mark.parametrize('form', ['yolo', 'voc'])
def test_a_list_chooses_images_and_names_may_be_of_another_file(place, run, form):
    source = dict(yolo=write_yolo, voc=write_voc)[form](place)
    convert(run, place, form, source)
    names = place / 'out/train.json'
    names.rename(place / 'names.json')
    (place / 'data.yaml').write_text('names: {0: dog, 1: cat}\n')
    (place / 'val.txt').write_text('b\n')
    for file in ('names.json', 'data.yaml'):
        words = '--list', place / 'val.txt', '--classes', place / file
        document, _ = convert(run, place, form, source, *words)
        assert boxes_of(document) == {'sub/b.png': BOXES['sub/b.png']}
        assert [x['name'] for x in document['categories']] == [*NAMES]


TURNED = 'filename,width,height,class,xmin,ymin,xmax,ymax\na.jpg,100,40,cat,1,2,30,30\n'


@pytest.mark.parametrize(
    ('form', 'files', 'words'),
    [
        ('yolo-seg', {'c.txt': '1 .5 .5 .2 .2 .9'}, 'has 6 numbers'),
        ('yolo-seg', {'c.txt': '1 .1 .1 .4 .1 .4 .4 .9 1'}, 'as the number of a track does'),
        ('csv', {'': 'a.jpg,,,,,\nc.2,1,1,5,5,cat\n'}, "image 'c.2' is not there"),
        ('yolo', {'c.txt': '1 .5 .5 .2 .2', '../img/c.jpg': None}, 'of c.jpg and of c.png'),
        ('voc', {x: voc_text('c.png', [], (20, 20)) for x in ('a/c.xml', 'b/c.xml')}, 'both be of'),
        ('csv', {'': 'day/c.png,1,1,5,5,cat\nnight/c.png,1,1,5,5,cat\n'}, 'both be of'),
        ('csv', {'': 'c.png,9,1,9,5,cat\nc.png,1,1,5,5,cat\nc.png,8,1,7,5,cat\n'}, 'csv:3'),
        ('csv', {'': 'a.jpg,1,1,5,5,"cat\nc.png,1,1,5,5,cat\n'}, 'takes in the lines after it'),
        ('csv', {'': TURNED}, 'the size is 100 x 40, and a.jpg is 40 x 100, its sides swapped'),
    ],
)
def test_what_is_not_exact_is_refused(place, run, form, files, words):
    for name, text in files.items():
        path = place / 'labels' / name if name else place / 'labels.csv'
        path.parent.mkdir(exist_ok=True)
        if text is None:
            Image.new('RGB', (20, 20)).save(path)
        else:
            path.write_text(text)
    source = place / 'labels.csv' if form == 'csv' else place / 'labels'
    document, said = convert(run, place, form, source, status=2)
    assert document is None
    assert words in said


YOLO_LINE = '1 .5 .5 .4 .4\n'


def touch(path, text=YOLO_LINE):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() in ('.txt', '.csv', '.gif'):
        path.write_text(text)
    else:
        Image.new('RGB', (20, 20)).save(path, format='JPEG' if path.suffix == '.jfif' else None)


@pytest.mark.parametrize(
    ('files', 'links', 'names', 'words'),
    [
        (('img/d.JPG', 'labels/d.TXT'), {}, ['d.JPG'], '3 of 4 images left out'),
        (('img/d.jfif', 'labels/d.txt'), {}, ['d.jfif'], '3 of 4 images left out'),
        (('disk/d.png', 'texts/d.txt'), dict(img='disk', labels='texts'), ['new/d.png'], '3 of 4'),
        ((), dict(img='img'), [], '1 link to a folder that is entered already'),
        (('img/.ipynb_checkpoints/c-checkpoint.png',), {}, [], '1 hidden'),
        (('img/._c.png', 'labels/._c.txt', 'img/__MACOSX/c.png'), {}, [], '3 hidden'),
        (('img/e\u0301.png', 'labels/\u00e9.txt'), {}, ['e\u0301.png'], '3 of 4 images left out'),
        (('img/d.1.png', 'labels/d.1.txt', 'img/d.png'), {}, ['d.1.png'], '4 of 5 images left out'),
        (('img/d.gif', 'labels/d.txt'), {}, None, 'passed over: 1 .gif'),
        (('labels/d.txt', 'labels/e.txt'), {}, None, 'e.txt has no image e.jpg'),
        (('labels/c.txt', 'labels/c.TXT'), {}, None, 'would both be of the image c'),
    ],
)
def test_what_is_seen_of_a_folder(place, run, files, links, names, words):
    for file in files:
        touch(place / file)
    for folder, target in links.items():
        (place / folder / 'new').symlink_to(place / target)
    named = ['a', 'sub/b', 'c'] if names == [] else [x.rpartition('.')[0] for x in names or ()]
    (place / 'list.txt').write_text('\n'.join(named))
    touch(place / 'labels/c.txt')
    only = ('--list', place / 'list.txt') if names else ()
    status = 2 if names is None else 0
    document, said = convert(run, place, 'yolo', place / 'labels', *only, status=status)
    assert words in said
    if names is not None:
        found = [x['file_name'] for x in document['images']]
        assert found == (names or sorted(SIZES))
        assert len(document['annotations']) == 1


@pytest.mark.parametrize(
    ('line', 'found'),
    [
        ('./images/sub/b.png', 'sub/b.png'),
        ('/content/data/images/sub/b.png', 'sub/b.png'),
        ('C:\\data\\sub\\b.png', 'sub/b.png'),
        ('b', 'sub/b.png'),
        ('val/b.png', None),
        ('sub/a.jpg', None),
    ],
)
def test_a_list_never_takes_the_picture_of_another_folder(place, run, line, found):
    (place / 'val.txt').write_text(line)
    words = '--list', place / 'val.txt'
    source = write_yolo(place)
    document, said = convert(run, place, 'yolo', source, *words, status=0 if found else 2)
    assert found is not None or 'though' in said
    assert found is None or [x['file_name'] for x in document['images']] == [found]


def test_guesses_groups_and_other_texts_are_said(place, run):
    head = 'ImageID,LabelName,XMin,XMax,YMin,YMax,IsGroupOf\n'
    rows = 'b,dog,0.1,0.5,0.1,0.5,1\nb,"ca\nt",0.1,0.5,0.1,0.5,0\n'
    (place / 'labels.csv').write_text(head + rows)
    (place / 'names.txt').write_text('')
    out = place / 'o.json'
    words = '--from', 'csv', '--images', place / 'img', '--out', out
    said = run(TOOL, place / 'labels.csv', *words)
    assert "1 images are found by the end of their path alone: 'b' is sub/b.png" in said
    document = json.loads(out.read_text())
    assert [x['iscrowd'] for x in document['annotations']] == [1, 0]
    assert [x['name'] for x in document['categories']] == ['ca\nt', 'dog']
    (place / 'names.txt').write_text('dog\ncat')
    (place / 'labels/sub/classes.txt').write_text('0\n1\n')
    (place / 'labels/README.roboflow.txt').write_text('exported on a day in May 2020\n')
    document, said = convert(run, place, 'yolo', write_yolo(place))
    assert boxes_of(document) == BOXES
    assert said.count('Left out, since it has no labels') == 2


@pytest.mark.parametrize(
    ('names', 'words'),
    [
        *((x, 'in quotes') for x in ('[yes, no]', '[1, 2]', '{0: off, 1: on}', '[null, a]')),
        ('{1: dog, 2: cat}', 'has no name for 0, only for 1, 2. Fix: '),
        ('{0: dog, 2: cat}', 'has no name for 1'),
    ],
)
def test_names_that_yaml_reads_as_another_thing(place, run, names, words):
    (place / 'data.yaml').write_text(f'names: {names}\n')
    _, said = convert(
        run, place, 'yolo', write_yolo(place), '--classes', place / 'data.yaml', status=2
    )
    assert words in said


@pytest.mark.parametrize('size', ['', '0', '20.0', ' 20 '])
def test_sizes_of_voc_may_be_absent_or_decimal(place, run, size):
    labels = [('cat', [0, 1, 5, 5])]
    (place / 'labels/c.xml').write_text(voc_text('c.png', labels, (size, size), first=0))
    assert boxes_of(convert(run, place, 'voc', place / 'labels')[0]) == {'c.png': labels}


def test_boxes_become_a_table_of_labels(tmp_path, run):
    box = [1, 1, 5, 5]
    boxes = [(1, 2, box), (1, 2, box), (3, 1, box), (3, 2, box), (4, 1, box)]
    document = coco_document(boxes, 4)
    for image, name in zip(document['images'], ('a.jpg', 'b.jpg', 'c, d.jpg', 'b.jpg')):
        image['file_name'] = name
    source = tmp_path / 'train.json'
    out = tmp_path / 'train.csv'
    document['annotations'][0]['category_id'] = '2'
    source.write_text(json.dumps(document))
    error = run('dataset_converters/coco_to_labels', source, out, status=2)
    assert not out.exists()
    assert "category_id is '2'" in error
    document['annotations'][0]['category_id'] = 2
    source.write_text(json.dumps(document))
    run('dataset_converters/coco_to_labels', source, out)
    assert out.read_text() == 'image,cat,dog\na.jpg,0,1\nb.jpg,1,0\n"c, d.jpg",1,1\n'
