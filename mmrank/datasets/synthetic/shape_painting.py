"""Painting of textured shapes, clutter and backgrounds with OpenCV.

All functions draw their randomness from the generator they are given and
paint in place on a float32 BGR canvas in [0, 255].
"""

import cv2
import numpy as np

SHAPES = ('disk', 'square', 'triangle', 'star', 'ring', 'cross', 'hexagon', 'crescent')
# Sub-pixel positions for cv2.fillPoly: coordinates carry 4 fractional bits.
_SHIFT = 4
# A pixel belongs to a shape where its anti-aliased cover is at least half.
_HALF_COVER = 0.5
# OpenCV's hue circle. Each class has a typical hue with a spread of half the step between classes:
# colour helps, as it does in the wild, but neighbours overlap and clutter comes in all hues.
_HUES = 180
_HUE_SPREAD = 11.0


def paint_background(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    """Paint a coloured gradient with low-frequency blotches."""
    # Mostly grey: a dull ground under colourful objects, as in the wild.
    corners = rng.uniform(60, 190, (2, 2, 1)) + rng.normal(0, 10, (2, 2, 3))
    canvas = cv2.resize(corners.astype(np.float32), (width, height))
    for cells in (4, 12):
        blotches = rng.normal(0, 10, (cells, cells, 1))
        blotches = (blotches + rng.normal(0, 5, (cells, cells, 3))).astype(np.float32)
        canvas += cv2.resize(blotches, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.clip(canvas, 0, 255)


def paint_distractors(
    rng: np.random.Generator, canvas: np.ndarray, min_size: float, max_size: float
) -> None:
    """Paint clutter like the objects but for the outline, without annotations."""
    height, width = canvas.shape[:2]
    for _ in range(rng.integers(2, 6)):
        size = np.exp(rng.uniform(np.log(min_size), np.log(max_size)))
        x = rng.uniform(0, width)
        y = rng.uniform(0, height)
        is_blob = rng.random() < 0.6
        if is_blob:
            outline = _polygon(9) * rng.uniform(0.4, 1.0, (9, 1))
        else:
            thin = rng.uniform(0.12, 0.3)
            corners = np.array([[1, thin], [-1, thin], [-1, -thin], [1, -thin]])
            outline = _rotate(corners, rng.uniform(0, np.pi))
        hue = rng.uniform(0, _HUES)
        _paint_outlines(rng, canvas, [(outline, 1)], x, y, size, hue)
    for _ in range(rng.integers(1, 4)):
        start = tuple(int(v) for v in rng.uniform(0, [width, height]))
        colour = tuple(float(v) for v in _colour(rng, rng.uniform(0, _HUES)))
        if rng.random() < 0.5:
            end = tuple(int(v) for v in rng.uniform(0, [width, height]))
            thickness = int(rng.integers(1, 4))
            cv2.line(canvas, start, end, colour, thickness, cv2.LINE_AA)
        else:
            letter = 'AEFGHKMNPRSWZ'[rng.integers(13)]
            scale = float(rng.uniform(0.5, 1.4))
            font = cv2.FONT_HERSHEY_SIMPLEX
            # OpenCV 5 writes on 8 bits alone.
            written = np.zeros((height, width), np.uint8)
            cv2.putText(written, letter, start, font, scale, 255, 2, cv2.LINE_8)
            canvas[written > 0] = colour


def paint_object(
    rng: np.random.Generator, canvas: np.ndarray, shape: str, x: float, y: float, size: float
) -> np.ndarray:
    """Paint one object with a random rotation, colour and texture."""
    angle = rng.uniform(0, 2 * np.pi)
    parts = [(_rotate(part, angle), sign) for part, sign in _parts(shape)]
    hue = SHAPES.index(shape) * _HUES / len(SHAPES)
    hue = rng.normal(hue, _HUE_SPREAD)
    window, cover = _paint_outlines(rng, canvas, parts, x, y, size, hue)
    mask = np.zeros(canvas.shape[:2], bool)
    mask[window] = cover >= _HALF_COVER
    return mask


def _parts(shape: str) -> list[tuple[np.ndarray, int]]:
    """Outlines in the unit circle; sign -1 cuts a part out again."""
    if shape == 'ring':
        return [(_polygon(48), 1), (0.58 * _polygon(48), -1)]
    if shape == 'crescent':
        return [(_polygon(48), 1), (0.8 * _polygon(48) + [0.45, 0], -1)]
    if shape == 'star':
        points = _polygon(10)
        points[1::2] *= 0.42
        return [(points, 1)]
    if shape == 'cross':
        arm = 0.32
        quarter = np.array([[arm, 0.95], [arm, arm], [0.95, arm]])
        turns = [_rotate(quarter, -k * np.pi / 2) for k in range(4)]
        return [(np.concatenate(turns), 1)]
    corners = {'disk': 48, 'square': 4, 'triangle': 3, 'hexagon': 6}
    return [(_polygon(corners[shape]), 1)]


def _polygon(corners: int) -> np.ndarray:
    """Corners of a regular polygon in the unit circle, (corners, 2)."""
    turn = np.arange(corners) * 2 * np.pi / corners
    return np.stack([np.cos(turn), np.sin(turn)], axis=1)


def _rotate(points: np.ndarray, angle: float) -> np.ndarray:
    cos = np.cos(angle)
    sin = np.sin(angle)
    return points @ np.array([[cos, sin], [-sin, cos]])


def _paint_outlines(
    rng: np.random.Generator,
    canvas: np.ndarray,
    parts: list[tuple[np.ndarray, int]],
    x: float,
    y: float,
    size: float,
    hue: float,
) -> tuple[tuple[slice, slice], np.ndarray]:
    """Paint outlines and return their window and cover within it."""
    # Only the window around the shape is touched: with many small objects
    # this is what makes the generator fast.
    height, width = canvas.shape[:2]
    reach = size / 2 + 2
    left = max(0, int(x - reach))
    top = max(0, int(y - reach))
    right = min(width, int(x + reach) + 1)
    bottom = min(height, int(y + reach) + 1)
    window = (slice(top, bottom), slice(left, right))
    x = x - left
    y = y - top
    # Anti-aliased.
    cover = np.zeros((bottom - top, right - left), np.uint8)
    for outline, sign in parts:
        points = outline * (size / 2) + [x, y]
        fixed = np.round(points * (1 << _SHIFT)).astype(np.int32)
        cv2.fillPoly(cover, [fixed], 255 if sign > 0 else 0, cv2.LINE_AA, _SHIFT)
    cover = cover.astype(np.float32) / 255
    # A colour unlike the ground, and a darker one.
    part = canvas[window]
    covered = cover >= _HALF_COVER
    ground = part[covered].mean(axis=0) if covered.any() else part[0, 0]
    first = _colour(rng, hue)
    while np.abs(first - ground).max() < 60:
        first = _colour(rng, hue)
    second = first * rng.uniform(0.45, 0.8)
    # The texture mixes both.
    angle = rng.uniform(0, np.pi)
    period = max(4.0, size / rng.uniform(2.5, 5.0))
    rows, cols = np.mgrid[0 : bottom - top, 0 : right - left].astype(np.float32)
    u = (cols - x) * np.cos(angle) + (rows - y) * np.sin(angle)
    v = (rows - y) * np.cos(angle) - (cols - x) * np.sin(angle)
    kind = rng.integers(4)
    mix = np.zeros_like(rows)
    if kind == 0:
        mix = np.clip(0.5 + u / size, 0, 1) * 0.5
    elif kind == 1:
        mix = np.sin(2 * np.pi * u / period) > 0
    elif kind == 2:
        mix = np.sin(2 * np.pi * u / period) * np.sin(2 * np.pi * v / period) > 0
    mix = mix.astype(np.float32)[..., None]
    alpha = cover[..., None]
    part *= 1 - alpha
    part += alpha * (first * (1 - mix) + second.astype(np.float32) * mix)
    return window, cover


def _colour(rng: np.random.Generator, hue: float) -> np.ndarray:
    """A saturated BGR colour in [0, 255] of the given OpenCV hue."""
    saturation = rng.integers(100, 256)
    value = rng.integers(70, 256)
    hsv = np.uint8([[[hue % _HUES, saturation, value]]])
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR)[0, 0].astype(np.float32)
