"""COCO documents: made of labels, and several as one with new ids and classes by their names."""

from collections.abc import Collection, Mapping

import numpy as np

from mmrank.annotations.findings import is_id
from mmrank.annotations.labels.pictures import SLACK, Faults, Label, Picture
from mmrank.annotations.lvis import INCOMPLETE, NEGATIVE
from mmrank.errors import UserError


def make_document(
    found: list[tuple[Picture, list[Label]]], classes: list[str], faults: Faults
) -> dict:
    """The COCO document; without ``classes`` the names in order of the alphabet."""
    names = classes or sorted({x.name for _, labels in found for x in labels})
    numbers = {name: number for number, name in enumerate(names, start=1)}
    pictures = sorted({picture for picture, _ in found})
    ids = {picture: number for number, picture in enumerate(pictures, start=1)}
    annotations = []
    for picture, labels in found:
        for label in labels:
            for fields in faults.of(_annotation, label, picture, numbers):
                own_ids = dict(id=len(annotations) + 1, image_id=ids[picture])
                annotations.append({**own_ids, **fields})
    images = [dict(id=ids[x], file_name=x.name, width=x.width, height=x.height) for x in pictures]
    categories = [dict(id=number, name=name) for name, number in numbers.items()]
    return dict(images=images, annotations=annotations, categories=categories)


def _annotation(label: Label, picture: Picture, numbers: dict[str, int]) -> dict:
    """Class, area and box, of which only what is in the picture."""
    if label.name not in numbers:
        what = f'{label.where}: class {label.name!r} is not in --classes: {", ".join(numbers):.200}'
        raise UserError(what, 'add it at the end, or correct the label')
    x1, y1, x2, y2 = label.corners
    left, right = (min(max(x, 0), picture.width) for x in (x1, x2))
    top, bottom = (min(max(x, 0), picture.height) for x in (y1, y2))
    overhang = max(-x1, -y1, x2 - picture.width, y2 - picture.height)
    if right <= left or bottom <= top or overhang > max(1, SLACK * max(picture[1:])):
        raise UserError(
            f'{label.where}: a box from ({x1:g}, {y1:g}) to ({x2:g}, {y2:g}) is not in '
            f'{picture.name}, {picture.width} x {picture.height} pixels',
            'the first corner left of and above the second, in the image, or remove the label',
        )
    area = (right - left) * (bottom - top)
    if label.polygon:  # by the shoelace formula
        x, y = np.array(label.polygon).reshape(-1, 2).T
        area = float(abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2)
    return dict(
        category_id=numbers[label.name],
        bbox=[left, top, right - left, bottom - top],
        area=area,
        segmentation=[list(label.polygon)] if label.polygon else [],
        iscrowd=int(label.is_crowd),
    )


def merge_coco(documents: Mapping[str, dict]) -> dict:
    """Join checked documents, by the names of their files.

    Images, annotations and categories are numbered from 1; classes of one name are one class, in
    the order in which they appear first. A ``UserError`` if two documents have a file name of an
    image in common: one picture would have two ids, or two pictures one name.
    """
    merged: dict[str, list] = {'images': [], 'annotations': [], 'categories': []}
    classes: dict[str, int] = {}
    owner: dict[str, str] = {}
    for file, document in documents.items():
        images = {}
        categories = {}
        for category in document['categories']:
            number = classes.setdefault(category['name'], len(classes) + 1)
            if number > len(merged['categories']):
                merged['categories'].append({**category, 'id': number})
            categories[category['id']] = number
        for image in document['images']:
            name = image.get('file_name') or image['coco_url']
            if owner.setdefault(name, file) != file:
                raise UserError(
                    f'{owner[name]} and {file} both have an image {name!r}. Fix: remove it from '
                    'one of them if it is the same picture, else put the folder into file_name'
                )
            images[image['id']] = len(merged['images']) + 1
            image = renumber_classes(image, categories)
            merged['images'].append({**image, 'id': images[image['id']]})
        for ann in document['annotations']:
            places = dict(
                image_id=images[ann['image_id']], category_id=categories[ann['category_id']]
            )
            number = len(merged['annotations']) + 1
            merged['annotations'].append({**ann, **places, 'id': number})
    return merged


def renumber_classes(image: dict, new_ids: Mapping, present: Collection = ()) -> dict:
    """An image whose lists of classes have new ids, without classes that have none.

    Those with an object, ``present``, are not verified absent.
    """
    lists = {}
    for key, left_out in ((NEGATIVE, present), (INCOMPLETE, ())):
        if isinstance(image.get(key), list):
            ids = (new_ids.get(x) for x in image[key] if is_id(x) or isinstance(x, float))
            lists[key] = [x for x in dict.fromkeys(ids) if x is not None and x not in left_out]
    return {**image, **lists} if lists else image
