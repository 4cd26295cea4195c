"""Checks of COCO files: every way to be bad, and the ways to be good."""

from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from coco_document import make_document
from hostile_files import put, set_ann, set_image
from noisy_boxes import write_json
from PIL import Image
from retrieval_trees import write_images

from mmrank.annotations.check import inspect_coco, read_checked
from mmrank.annotations.clean import clean_coco
from mmrank.annotations.images import image_fault
from mmrank.errors import UserError
from mmrank.pictures import detections


@pytest.fixture
def folder(tmp_path):
    """The images of a document."""
    write_images(tmp_path / 'images', ('1.png', '2.png', '3.png'), (30, 40, 3))
    return tmp_path / 'images'


def test_good_file_is_counted(folder, tmp_path):
    document = make_document()
    document['annotations'].append({**document['annotations'][0], 'id': 4, 'iscrowd': 1})
    document['annotations'][3]['bbox'] = [3, 3, 10, 8]
    _, report = read_checked(write_json(tmp_path / 'ann.json', document), folder)
    assert report.ok
    assert not report.problems
    assert report.counts['cat'].crowd == 1
    assert report.num_empty_images == 1
    assert report.counts['cat'].total == 2
    assert report.counts['cat'].medium == 1
    assert report.counts['dog'].small == 1


def warnings_of(document, **options):
    report = inspect_coco(document, 'a.json', **options)
    assert report.ok
    return [problem.kind for problem in report.warnings]


def errors_of(document, **options):
    return [problem.kind for problem in inspect_coco(document, 'a.json', **options).errors]


def test_damaged_and_resized_images(folder, tmp_path):
    path = write_json(tmp_path / 'ann.json', make_document())
    for size in ((20, 15), (30, 40), (80, 60), (41, 30)):
        Image.new('RGB', size).save(folder / '2.png')
        message = f'is {size[0]} x {size[1]}, the annotation file has 40 x'
        with pytest.raises(UserError, match=message):
            read_checked(path, folder)
    Image.new('RGB', (40, 30)).save(folder / '2.png')
    (folder / '1.png').write_bytes(b'')
    with pytest.raises(UserError, match='has 0 bytes'):
        read_checked(path, folder)
    (folder / '1.png').write_bytes(b'no image')
    read_checked(path, folder)
    with pytest.raises(UserError, match='unreadable image file'):
        read_checked(path, folder, verify_images=True)
    with pytest.raises(UserError, match='missing image folder'):
        read_checked(path, folder / 'nowhere')


@pytest.mark.parametrize('name', ['a.jpg', 'a.png', 'a.webp'])
@pytest.mark.parametrize('orientation', [1, 3, 6, 8])
def test_sizes_are_those_that_the_loader_sees(tmp_path, name, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new('RGB', (40, 24), 'red').save(tmp_path / name, exif=exif.tobytes())
    height, width = cv2.imread(str(tmp_path / name)).shape[:2]
    image = {'id': 1, 'file_name': name, 'width': width, 'height': height}
    document = {**make_document(), 'images': [image], 'annotations': []}
    assert not inspect_coco(document, 'x', tmp_path, verify_images=True).errors
    truth = SimpleNamespace(imgs={1: image})
    assert detections._read(truth, tmp_path, 1).shape == (height, width, 3)
    image.update(width=height, height=width)
    (problem,) = inspect_coco(document, 'x', tmp_path, verify_images=True).errors
    assert f'is {width} x {height}, the annotation file has {height} x' in problem.examples[0]
    assert 'by its EXIF' in problem.examples[0]


@pytest.mark.parametrize(
    ('largest', 'is_told'), [(4080, True), (16383, True), (60000, False), (0, False)]
)
def test_twelve_bits_in_sixteen_are_reported_without_decoding_all(tmp_path, largest, is_told):
    document = make_document()
    for image in document['images']:
        pixels = np.full((30, 40), largest, np.uint16)
        cv2.imwrite(str(tmp_path / image['file_name']), pixels)
    for channels in (pixels, np.dstack([pixels] * 3)):
        cv2.imwrite(str(tmp_path / '1.png'), channels)
        fault = image_fault(tmp_path / '1.png')
        assert (f'its 16-bit values end at {largest}' in str(fault)) == is_told
    warnings = inspect_coco(document, 'a.json', tmp_path).warnings
    assert [x.kind for x in warnings] == ['dark images'] * is_told
    assert not is_told or '3 of 3 images' in str(warnings[0])
    # One bright picture: the values have 16 bits.
    cv2.imwrite(str(tmp_path / '2.png'), np.full((30, 40), 60000, np.uint16))
    assert not inspect_coco(document, 'a.json', tmp_path).warnings


def test_filtered_images_need_no_file(folder, tmp_path):
    (folder / '3.png').unlink()
    path = write_json(tmp_path / 'ann.json', make_document())
    with pytest.raises(UserError, match=r'3\.png'):
        read_checked(path, folder)
    read_checked(path, folder, skip_empty_images=True)
    read_checked(path, folder, min_size=32)
    # Only 'dog' is wanted: image 2 holds a cat alone.
    (folder / '2.png').unlink()
    read_checked(path, folder, classes=['dog'], skip_empty_images=True)


def test_problems_of_a_kind_are_counted_and_the_first_shown():
    document = make_document()
    base = document['annotations'].pop()
    for number in range(10, 30):
        bad = {**base, 'id': number, 'bbox': [1, 1, -number, 2]}
        document['annotations'].append(bad)
    report = inspect_coco(document, 'a.json')
    (problem,) = report.problems
    assert problem.count == 20
    assert len(problem.examples) == 5
    assert '... and 15 more' in str(problem)
    # Few empty boxes among very many are a warning.
    document['annotations'] = [{**base, 'id': i + 1} for i in range(20_000)]
    document['annotations'][7]['bbox'] = [2, 3, 10, 0]
    assert warnings_of(document) == ['box of zero size', 'same box twice']


def test_classes_are_compared_with_categories():
    document = make_document()
    report = inspect_coco(document, 'a.json', classes=['cat', 'cow'])
    assert "'cow'" in str(report.errors[0])
    assert inspect_coco(document, 'a.json', classes=['dog']).ok
    assert warnings_of(document, classes=['dog', 'cat']) == ['order of classes differs']


@pytest.mark.parametrize('ids', [[1, 2, '3'], [3, 2, '3'], [1, 2, 2**63], ['a', 2, 1]])
def test_ids_that_evaluators_do_not_hold(ids):
    document = make_document()
    for value in ('a-1', 2**63, -(2**63) - 1):
        document['annotations'][0]['id'] = value
        (problem,) = inspect_coco(document, 'a.json').errors
        assert 'id is ' in str(problem)
        assert [x['id'] for x in clean_coco(document)[0]['annotations']] == [1, 2, 3]
    document['annotations'][0]['id'] = 1
    for image, new in zip(document['images'], ids):
        image['id'] = new
    for ann in document['annotations']:
        ann['image_id'] = ids[ann['image_id'] - 1]
    assert errors_of(document) == ['ids of several kinds']
    cleaned, _ = clean_coco(document)
    assert inspect_coco(cleaned, 'a.json').ok
    names = {image['id']: image['file_name'] for image in cleaned['images']}
    assert [names[ann['image_id']] for ann in cleaned['annotations']] == ['1.png', '1.png', '2.png']


SUSPICIOUS = {
    'annotation id 0': set_ann(0, id=0),
    'no annotation at all': lambda d: d['annotations'].clear(),
    'one picture under two ids': set_image(1, file_name='1.png'),
    'same box twice': lambda d: d['annotations'].append({**d['annotations'][0], 'id': 9}),
    'rotated box': set_ann(0, attributes={'rotation': 41.5}),
    'class of crowds alone': set_ann(1, iscrowd=1),
    'object to ignore': set_ann(0, ignore=1),
    'area does not fit the box': lambda d: [a.update(area=0.2) for a in d['annotations']],
    'class names that look alike': put('categories', 1, name=' Cat'),
    'class names that look alike ': lambda d: [
        x.update(name=name) for x, name in zip(d['categories'], ('no_cat', 'no cat'))
    ],
    'one picture under two ids ': set_image(1, file_name='./1.png'),
    'absolute file name': set_image(0, file_name='/data/1.png'),
    'mask that cannot be drawn': set_ann(0, segmentation=[2, 3, 12, 3, 12, 11]),
}


@pytest.mark.parametrize('kind', SUSPICIOUS)
def test_suspicious_objects_are_reported(kind):
    document = make_document()
    SUSPICIOUS[kind](document)
    assert warnings_of(document) == [kind.strip()]


@pytest.mark.parametrize(
    ('mask', 'is_good'),
    [
        ([[2, 3, 12, 3, 12, 11]], True),
        ([[2, 3, 12, 3, 12]], False),
        ([[2, 3, 12, 3]], False),
        ([[[2, 3], [12, 3], [12, 11]]], False),
        ([[2, 3, 12, 3, 12, float('nan')]], False),
        ([[2, 3, 12, 3, 12, '11']], False),
        ({'size': [30, 40], 'counts': [1100, 100]}, True),
        ({'size': [40, 30], 'counts': [1100, 100]}, False),
        ({'counts': [1100, 100]}, False),
        ({'size': [30, 40], 'counts': [5, 5]}, False),
        ({'size': [30, 40], 'counts': [1300, -100]}, False),
        ('1100 100', False),
    ],
)
def test_masks_that_are_trained_on_can_be_drawn(mask, is_good):
    document = make_document()
    for ann in document['annotations']:
        ann.update(bbox=[2, 3, 10, 8], segmentation=[[2, 3, 12, 3, 12, 11]])
    document['annotations'][0]['segmentation'] = mask
    assert errors_of(document, require_masks=True) == ['mask that cannot be drawn'] * (not is_good)


def test_masks_lie_where_their_boxes_are():
    document = make_document()
    for ann in document['annotations']:
        x, y, width, height = ann['bbox']
        ann['segmentation'] = [[x, y, x + width, y, x + width, y + height]]
    assert not inspect_coco(document, 'a.json', require_masks=True).problems
    for far in ([0.1, 0.1, 0.3, 0.1, 0.3, 0.3], [35, 25, 39, 25, 39, 29]):
        document['annotations'][1]['segmentation'] = [far]
        assert errors_of(document, require_masks=True) == ['mask elsewhere than the box']


@pytest.mark.parametrize('scale', [0.5, 2, 10, 1, 1.1, 0.9])
def test_polygons_of_another_scale_than_their_boxes_are_said(scale):
    """They may still touch their boxes; a check without masks looks at them, too."""
    document = make_document()
    for image in document['images']:
        image.update(width=400, height=400)
    for ann in document['annotations']:
        ann.update(bbox=[60, 60, 80, 80], area=6400)
        low, high = 60 * scale, 140 * scale
        ann['segmentation'] = [[low, low, high, low, high, high, low, high]]
    found = [x.kind for x in inspect_coco(document, 'a.json').problems]
    assert ('mask elsewhere than the box' in found) == (scale in (0.5, 2, 10))


def test_boxes_in_fractions_and_as_corners():
    document = make_document()
    for ann in document['annotations']:
        ann.update(bbox=[20, 15, 38, 28], area=1000)
    assert errors_of(document) == ['boxes are corners']
    document['annotations'][0].update(bbox=[20, 15, 3, 2], area=6)
    assert warnings_of(document) == ['boxes reach beyond the image']
    for ann in document['annotations']:
        ann['bbox'] = [0.2, 0.5, 0.25, 0.5]
    assert errors_of(document) == ['boxes in fractions']
    document['annotations'][1:] = make_document()['annotations'][1:]
    assert errors_of(document) == ['boxes in fractions']
    good = document['annotations'][1]
    document['annotations'] += [
        {**good, 'id': i, 'area': 81, 'bbox': [i / 9, 2, 9, 9]} for i in range(4, 30)
    ]
    assert warnings_of(document) == ['boxes in fractions']
