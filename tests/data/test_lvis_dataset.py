"""LVIS files: what is filled in, refused, and told to the heads."""

import pytest
from noisy_boxes import as_lvis, make_document, write_json
from retrieval_trees import write_images

from mmrank.annotations.check import inspect_coco
from mmrank.annotations.lvis import complete_lvis
from mmrank.errors import UserError
from mmrank.registry import DATASETS

FIELDS = ('neg_category_ids', 'not_exhaustive_category_ids')


def document():
    found = as_lvis(make_document(2, 3, 4, objects=3))
    for image in found['images']:
        present = {a['category_id'] for a in found['annotations'] if a['image_id'] == image['id']}
        free = [c['id'] for c in found['categories'] if c['id'] not in present]
        image['neg_category_ids'] = free[:1]
    return found


def problems(found, **options):
    report = inspect_coco(found, 'lvis.json', **options)
    return report, {problem.kind: problem for problem in report.problems}


def test_what_lvis_leaves_out_is_filled_in():
    found = document()
    report, kinds = problems(found)
    assert report.ok
    assert not kinds
    assert found['images'][0]['file_name'] == 'val2017/1.jpg'
    assert all(a['iscrowd'] == 0 for a in found['annotations'])
    odd = dict(images=[3, dict(coco_url=7)], annotations=None)
    complete_lvis(odd)
    assert odd == dict(images=[3, dict(coco_url=7)], annotations=None)


@pytest.mark.parametrize('field', FIELDS)
def test_a_missing_field_is_an_error_where_it_is_needed(field):
    found = document()
    for image in found['images'][1:]:
        del image[field]
    report, kinds = problems(found)
    assert report.ok
    assert kinds['federated field'].count == 2
    report, kinds = problems(found, federated=True)
    with pytest.raises(UserError, match=f'has no {field!r}') as caught:
        report.raise_if_bad()
    assert str(caught.value).count('Fix:') == 1
    # Of COCO's files nothing is expected.
    plain = make_document()
    assert not problems(plain)[1]
    assert 'federated field' in problems(plain, federated=True)[1]


@pytest.mark.parametrize(
    ('value', 'text'), [(7, 'not a list'), ([True], 'not a'), ([99], 'no cat')]
)
def test_a_field_of_another_form(value, text):
    found = document()
    found['images'][0]['neg_category_ids'] = value
    report, _ = problems(found, federated=True)
    assert not report.ok
    with pytest.raises(UserError, match=text):
        report.raise_if_bad()
    # A class that is both there and absent is a warning.
    ann = found['annotations'][0]
    image = next(i for i in found['images'] if i['id'] == ann['image_id'])
    image['neg_category_ids'] = [ann['category_id']]
    report, kinds = problems(found, federated=True)
    assert report.ok
    assert kinds['verified absent and annotated'].count == 1


@pytest.fixture
def folder(tmp_path):
    """A folder with images and ``lvis.json``."""
    found = document()
    paths = [f'val2017/{image["id"]}.jpg' for image in found['images']]
    write_images(tmp_path, paths, (480, 640, 3))
    write_json(tmp_path / 'lvis.json', found)
    return tmp_path, found


def settings(root, **more):
    return dict(
        type='mmrank.LVISDataset',
        data_root=str(root),
        ann_file='lvis.json',
        data_prefix=dict(img=''),
        **more,
    )


def build(root, names):
    pytest.importorskip('mmdet')
    pipeline = [
        dict(type='LoadImageFromFile'),
        dict(type='mmdet.LoadAnnotations', with_bbox=True),
        dict(type='mmdet.RandomFlip', prob=1.0),
        dict(type='mmdet.PackDetInputs', meta_keys=('img_id', 'exhaustive_labels')),
    ]
    return DATASETS.build(settings(root, metainfo=dict(classes=names), pipeline=pipeline))


@pytest.mark.parametrize('number', [4, 2])
def test_samples_say_what_their_image_is_annotated_for(folder, number):
    """Also where a model learns some of the classes only."""
    root, found = folder
    classes = found['categories'][:number]
    dataset = build(root, [c['name'] for c in classes])
    seen = set()
    for index, image in enumerate(found['images']):
        sample = dataset[index]['data_samples']
        assert sample.img_id == image['id']
        expected = [
            label
            for label, c in enumerate(classes)
            if c['id'] not in image['not_exhaustive_category_ids']
            and (
                c['id'] in image['neg_category_ids']
                or any(
                    (a['image_id'], a['category_id']) == (image['id'], c['id'])
                    for a in found['annotations']
                )
            )
        ]
        assert list(sample.exhaustive_labels) == expected
        seen.add(tuple(expected))
    assert len(seen) > 1


def test_default_classes_are_those_of_lvis_v1(folder):
    pytest.importorskip('mmdet')
    from mmdet.datasets import LVISV1Dataset

    from mmrank.datasets.checked_coco_dataset import LVISDataset
    from mmrank.datasets.checks.coco_check import check_config

    assert LVISDataset.METAINFO is LVISV1Dataset.METAINFO
    root, found = folder
    data = settings(root)
    config = dict(train_dataloader=dict(dataset=data))
    with pytest.raises(UserError, match='1203 names in metainfo'):
        check_config(config)
    names = [c['name'] for c in found['categories']]
    data['metainfo'] = dict(classes=names)
    del found['images'][0]['neg_category_ids']
    write_json(root / 'lvis.json', found)
    with pytest.raises(UserError, match="no 'neg_category_ids'"):
        check_config(config)
    with pytest.raises(UserError, match="no 'neg_category_ids'"):
        build(root, names)
