"""Cleaned copies and merged files of COCO documents."""

import copy
import json

import pytest
from coco_document import make_document
from noisy_boxes import write_json
from PIL import Image

from mmrank.annotations.check import inspect_coco
from mmrank.annotations.clean import clean_coco
from mmrank.annotations.documents import merge_coco
from mmrank.errors import UserError

CHECK = 'dataset_converters/check_coco'


def test_cleaning_leaves_a_good_file():
    document = make_document()
    good = copy.deepcopy(document['annotations'][0])
    document['annotations'] += [
        {**good, 'bbox': [1, 1, -4, 4]},
        {k: v for k, v in good.items() if k not in ('area', 'iscrowd')},
        {**good, 'category_id': 12},
        5,
    ]
    document['images'].append(dict(document['images'][0]))
    before = copy.deepcopy(document)
    cleaned, changes = clean_coco(document)
    assert document == before
    assert inspect_coco(cleaned, 'a.json').ok
    assert len(cleaned['annotations']) == 4
    assert len(cleaned['images']) == 3
    assert any('dropped 3 annotations' in change for change in changes)
    same, changes = clean_coco(make_document())
    assert same == make_document()
    assert not changes
    with pytest.raises(UserError, match='cannot be cleaned'):
        clean_coco({'images': []})
    document['categories'][1]['id'] = 1
    with pytest.raises(UserError, match='none of its 2 categories would be left .*dropped 2 cat'):
        clean_coco(document)


@pytest.mark.parametrize(
    ('key', 'value', 'becomes'),
    [
        ('iscrowd', '1', 1),
        ('iscrowd', ' True ', 1),
        ('iscrowd', '0', 0),
        ('iscrowd', None, 0),
        ('iscrowd', 'maybe', 'dropped'),
        ('iscrowd', 2, 'dropped'),
        ('area', '7.5', 7.5),
        ('area', 10**400, 80),
    ],
)
def test_a_text_is_read_or_dropped_and_never_guessed(key, value, becomes):
    document = make_document()
    number = len(document['annotations'])
    document['annotations'][0][key] = value
    annotations = clean_coco(document)[0]['annotations']
    assert len(annotations) == number - (becomes == 'dropped')
    assert becomes == 'dropped' or annotations[0][key] == becomes


def as_numbers(document, kind, keys):
    for part in ('images', 'annotations', 'categories'):
        for entry in document[part]:
            entry.update({key: kind(entry[key]) for key in keys if key in entry})


@pytest.mark.parametrize('kind', [float, str])
@pytest.mark.parametrize(
    'keys', [('id', 'image_id', 'category_id'), ('image_id',), ('category_id',)]
)
def test_cleaning_keeps_ids_of_another_type(kind, keys):
    document = make_document()
    as_numbers(document, kind, keys)
    cleaned, changes = clean_coco(document)
    assert cleaned == make_document()
    assert any(f'changed {keys[-1]} of' in change for change in changes)


def test_cleaning_drops_what_is_ambiguous():
    document = make_document()
    document['images'][1]['id'] = 1  # 2.png, whose object now is in 1.png as well
    document['annotations'][2]['image_id'] = 1
    document['annotations'].append({**document['annotations'][0], 'id': 4, 'image_id': 3})
    cleaned, changes = clean_coco(document)
    assert [x['file_name'] for x in cleaned['images']] == ['3.png']
    assert [x['id'] for x in cleaned['annotations']] == [4]
    assert changes[:2] == ['dropped 2 images', 'dropped 3 annotations']
    assert 'ids of several images or categories, and so of none: [1]' in changes


def test_cleaning_tidies_names_masks_and_sizes(tmp_path):
    document = make_document()
    expected = copy.deepcopy(document)
    exif = Image.Exif()
    exif[0x0112] = 6  # turned: stored as 30 x 40
    Image.new('RGB', (30, 40)).save(tmp_path / '1.jpg', exif=exif.tobytes())
    Image.new('RGB', (40, 30)).save(tmp_path / '2.png')
    (tmp_path / 'a').mkdir()
    Image.new('RGB', (40, 30)).save(tmp_path / 'a/3.png')
    for image, name in zip(expected['images'], ('1.jpg', '2.png', 'a/3.png')):
        image['file_name'] = name
    one, two, three = document['images']
    del one['width'], one['height']
    one['file_name'] = '1.JPG'
    two.update(height=0, file_name='./2.png')
    three['file_name'] = 'a\\3.png'
    document['categories'][1]['name'] = ' dog '
    triangle = [1, 1, 9, 1, 9, 9]
    masks = (triangle, [triangle, [1, 1, 2, 2], [1, 1, float('nan'), 1, 9, 9]], [])
    for ann, kept, mask in zip(document['annotations'], expected['annotations'], masks):
        ann['segmentation'], kept['segmentation'] = mask, [triangle] if mask else []
    cleaned, changes = clean_coco(document, tmp_path)
    assert cleaned == expected
    assert changes == [
        'changed file_name of 3 images',
        'changed width of 1 images',
        'changed height of 2 images',
        'changed name of 1 categories',
        'changed segmentation of 2 annotations',
    ]
    assert clean_coco(expected, tmp_path) == (expected, [])


def test_cleaned_and_merged_files_keep_what_images_lack():
    document = make_document()
    document['categories'] += [{'id': 7, 'name': 'cow'}, {'id': 9, 'name': 'dog'}]
    for image in document['images']:
        image.update(neg_category_ids=[7], not_exhaustive_category_ids=[])
    document['images'][0].update(neg_category_ids=[1, 7, 50], not_exhaustive_category_ids=[9])
    document['annotations'][1]['category_id'] = 9
    cleaned, changes = clean_coco(document)
    assert cleaned['annotations'] == make_document()['annotations']
    assert 'dropped 1 categories' in changes
    # An object decides against the list, 50 is no class, 9 is another dog.
    assert cleaned['images'][0]['neg_category_ids'] == [7]
    assert cleaned['images'][0]['not_exhaustive_category_ids'] == [2]
    assert 'changed neg_category_ids of 1 images' in changes
    as_numbers(document, str, ['id', 'category_id'])
    assert clean_coco(document)[0]['images'][0]['neg_category_ids'] == [7]
    other = copy.deepcopy(cleaned)
    other['categories'].reverse()
    for image in other['images']:
        image['file_name'] = f'b/{image["file_name"]}'
    merged = merge_coco({'b': other, 'a': cleaned})
    assert [x['name'] for x in merged['categories']] == ['cow', 'dog', 'cat']
    assert [x['neg_category_ids'] for x in merged['images']] == [[1]] * 6
    assert inspect_coco(merged, 'a.json', federated=True).ok


def test_files_are_merged_by_class_names(tmp_path, run):
    one, other = make_document(), make_document()
    other['categories'] = [{'id': 1, 'name': 'dog'}, {'id': 2, 'name': 'cow'}]
    for image in other['images']:
        image['file_name'] = f'b/{image["file_name"]}'
    paths = [write_json(tmp_path / 'one.json', one), write_json(tmp_path / 'other.json', other)]
    run(CHECK, *paths, '--merge', tmp_path / 'all.json')
    before = paths[0].read_bytes()
    link = tmp_path / 'link.json'
    link.symlink_to(paths[0])
    assert 'is the source' in run(CHECK, *paths, '--merge', link, status=2)
    assert paths[0].read_bytes() == before
    merged = json.loads((tmp_path / 'all.json').read_text())
    report = inspect_coco(merged, 'all.json')
    assert not report.problems
    assert {name: count.total for name, count in report.counts.items()} == dict(cat=2, dog=3, cow=1)
    names = {image['id']: image['file_name'] for image in merged['images']}
    found = [names[x['image_id']] for x in merged['annotations'][3:]]
    assert found == ['b/1.png', 'b/1.png', 'b/2.png']
    document = dict(other, categories=[{'id': 1, 'name': 'Dog'}, {'id': 2, 'name': 'cow'}])
    document['images'] = [{**x, 'file_name': f'c{x["file_name"]}'} for x in other['images']]
    third = write_json(tmp_path / 'third.json', document)
    assert 'look alike' in run(CHECK, paths[0], third, '--merge', tmp_path / 'all.json')
    # Compared without merging: label 0 is another class, and the same images are in both.
    assert "label 0 is 'cat' in " in run(CHECK, *paths, status=2)
    assert '3 of 3 images' in run(CHECK, paths[0], paths[0])
    with pytest.raises(UserError, match="both have an image '1.png'"):
        merge_coco({'a': one, 'b': one})
