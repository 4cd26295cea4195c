"""Several COCO documents as one: new ids, classes by their names."""

from collections.abc import Collection, Mapping

from mmrank.annotations.findings import is_id
from mmrank.annotations.lvis import INCOMPLETE, NEGATIVE
from mmrank.errors import UserError


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
