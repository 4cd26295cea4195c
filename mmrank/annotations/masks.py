"""The form of the mask of an annotation, and whether it lies where its box is."""

#: Largest coordinate, width and height in pixels; float32 must hold it.
LARGEST_PIXEL = 1e9
NUMBERS = frozenset((int, float))
#: Pixels by which a box may end beyond its image, or a mask miss its box.
OVERHANG_PIXELS = 2
#: Part of the longer of both sides that a mask and its box have in common at least.
_SHARED = 0.25


def mask_form(mask: object, size: tuple, box: list) -> int:
    """1: polygons or the RLE of an image of this size, -1: another form, -2: off the box."""
    if type(mask) is list:
        if not all(map(is_polygon, mask)):
            return -1
        return 1 if all(_meets(mask, box, axis) for axis in (0, 1)) else -2
    counts = mask.get('counts') if type(mask) is dict else None
    if not counts or mask.get('size') != [size[1], size[0]]:
        return -1
    if type(counts) is list:
        is_whole = all(type(x) is int and x >= 0 for x in counts)
        return 1 if is_whole and sum(counts) == size[0] * size[1] else -1
    return 1


def _meets(polygons: list, box: list, axis: int) -> bool:
    """Whether polygons and box share a quarter of the longer one along an axis, or two pixels."""
    places = [x for polygon in polygons for x in polygon[axis::2]]
    low = min(places)
    high = max(places)
    end = box[axis] + box[axis + 2]
    shared = min(high, end) - max(low, box[axis]) + OVERHANG_PIXELS
    return shared >= max(high - low, box[axis + 2]) * _SHARED


def is_polygon(polygon: object) -> bool:
    """Whether a value is a list of three points or more, of finite numbers."""
    if type(polygon) is not list or len(polygon) < 6 or len(polygon) % 2:
        return False
    return NUMBERS.issuperset(map(type, polygon)) and all(abs(x) <= LARGEST_PIXEL for x in polygon)
