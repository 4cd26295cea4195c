"""Small COCO documents without a fault, for tests to damage."""


def coco_document(boxes, images=3, size=(40, 30), classes=('cat', 'dog'), first=1) -> dict:
    """Images of one size, ``1.png``, ``2.png`` and so on, and their objects.

    Args:
        boxes: Image id, category id, and left, top, width and height of each object.
        images: Their number.
        size: Width and height of an image.
        classes: Names of the categories, whose ids start at 1.
        first: Id of the first image and of the first object.
    """
    width, height = size
    return {
        'images': [
            {'id': i, 'file_name': f'{i}.png', 'width': width, 'height': height}
            for i in range(first, first + images)
        ],
        'annotations': [
            {
                'id': number,
                'image_id': image_id,
                'category_id': category,
                'bbox': box,
                'area': box[2] * box[3],
                'iscrowd': 0,
            }
            for number, (image_id, category, box) in enumerate(boxes, first)
        ],
        'categories': [{'id': i, 'name': name} for i, name in enumerate(classes, 1)],
    }


def make_document() -> dict:
    """Three images of 40 x 30, one of them empty, two classes."""
    return coco_document([(1, 1, [2, 3, 10, 8]), (1, 2, [20, 5, 12, 12]), (2, 1, [0, 0, 40, 30])])
