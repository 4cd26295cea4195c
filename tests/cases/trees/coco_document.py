"""A COCO document without a fault, for tests to damage."""


def make_document() -> dict:
    """Three images of 40 x 30, one of them empty, two classes."""
    images = [{'id': i, 'file_name': f'{i}.png', 'width': 40, 'height': 30} for i in (1, 2, 3)]
    boxes = [(1, 1, [2, 3, 10, 8]), (1, 2, [20, 5, 12, 12])]
    boxes += [(2, 1, [0, 0, 40, 30])]
    annotations = [
        {
            'id': number,
            'image_id': image_id,
            'category_id': cat,
            'bbox': box,
            'area': box[2] * box[3],
            'iscrowd': 0,
        }
        for number, (image_id, cat, box) in enumerate(boxes, start=1)
    ]
    categories = [{'id': 1, 'name': 'cat'}, {'id': 2, 'name': 'dog'}]
    return {'images': images, 'annotations': annotations, 'categories': categories}
