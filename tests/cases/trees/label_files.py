"""Label files as other tools write them."""


def yolo_line(number, box, size) -> str:
    """A line of YOLO: the class, and the centre and sides of a box in fractions of the picture."""
    x, y, w, h = box
    width, height = size
    return f'{number} {(x + w / 2) / width} {(y + h / 2) / height} {w / width} {h / height}'


def voc_text(name, labels, size, first=1, difficult=()) -> str:
    """An XML file of Pascal VOC.

    Args:
        name: Name of the picture.
        labels: Class and ``[x, y, width, height]`` of each object.
        size: Width and height of the picture, of any type.
        first: Number of the first pixel.
        difficult: Classes whose objects are marked so.
    """
    objects = ''.join(
        f'<object><name>{kind}</name><difficult>{int(kind in difficult)}</difficult><bndbox>'
        f'<xmin>{x + first}</xmin><ymin>{y + first}</ymin><xmax>{x + w}</xmax><ymax>{y + h}</ymax>'
        '</bndbox></object>'
        for kind, (x, y, w, h) in labels
    )
    width, height = size
    return (
        f'<annotation><filename>{name}</filename><size><width>{width}</width>'
        f'<height>{height}</height></size>{objects}</annotation>'
    )
