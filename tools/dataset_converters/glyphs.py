"""A made-up alphabet: random strokes, drawn by a shaky hand.

Everything follows from the seed. One class is one glyph, a few polylines;
its samples are drawings with moved corners, turned, scaled and shifted. Small enough for tests and
demos, and not solved by pixels alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

# Lines are drawn on a finer grid and shrunk: smooth at any size.
_SUPERSAMPLING = 4


def check_least(spec: object, **least: float) -> None:
    """Check that fields of a spec are not below their least values."""
    for name, value in least.items():
        if getattr(spec, name) < value:
            raise ValueError(f'{name} must be at least {value}, got {getattr(spec, name)}')


@dataclass(frozen=True)
class GlyphsSpec:
    """Settings of the glyphs."""

    num_classes: int = 20  # Glyphs
    per_class: int = 10  # Drawings of a glyph
    size: int = 28  # Side of the images in pixels, at least 8
    jitter: float = 0.03  # Standard deviation of a corner's place, as a share of the side
    rotation: float = 12.0  # Largest angle of a drawing, in degrees
    seed: int = 0  # Another seed invents other glyphs

    def __post_init__(self) -> None:
        check_least(self, num_classes=1, per_class=1, size=8, jitter=0, rotation=0, seed=0)


def draw_glyph(spec: GlyphsSpec, label: int, sample: int) -> np.ndarray:
    """Make one drawing."""
    strokes = _invent(np.random.default_rng([spec.seed, label]))
    rng = np.random.default_rng([spec.seed, label, 1 + sample])
    angle = np.deg2rad(rng.uniform(-spec.rotation, spec.rotation))
    cos, sin = np.cos(angle), np.sin(angle)
    turn = np.array([[cos, -sin], [sin, cos]]) * rng.uniform(0.85, 1.05)
    shift = 0.5 + rng.uniform(-0.04, 0.04, 2)
    side = spec.size * _SUPERSAMPLING
    canvas = np.zeros((side, side), np.uint8)
    thickness = max(1, round(side * rng.uniform(0.045, 0.065)))
    for stroke in strokes:
        moved = stroke + rng.normal(0, spec.jitter, stroke.shape)
        points = np.rint(((moved - 0.5) @ turn.T + shift) * side).astype(np.int32)
        cv2.polylines(canvas, [points], False, 255, thickness, cv2.LINE_AA)
    return cv2.resize(canvas, (spec.size, spec.size), interpolation=cv2.INTER_AREA)


def write_glyphs(
    out_dir: str | Path, spec: GlyphsSpec, progress: Callable[[int, int], None] | None = None
) -> None:
    """Write ``glyph_<class>/<drawing>.png`` for every drawing."""
    digits = len(str(max(spec.num_classes, spec.per_class) - 1))
    for label in range(spec.num_classes):
        folder = Path(out_dir) / f'glyph_{label:0{digits}d}'
        folder.mkdir(parents=True, exist_ok=True)
        for sample in range(spec.per_class):
            path = folder / f'{sample:0{digits}d}.png'
            if not cv2.imwrite(str(path), draw_glyph(spec, label, sample)):
                raise OSError(
                    f'cannot write image {path}: is the disk full or the folder read-only?'
                )
        if progress is not None:
            progress(label + 1, spec.num_classes)


def _invent(rng: np.random.Generator) -> list[np.ndarray]:
    """Two or three open strokes over the nodes of a bent 3 x 3 grid, as letters have."""
    grid = np.stack(np.meshgrid([0.2, 0.5, 0.8], [0.2, 0.5, 0.8]), axis=-1)
    nodes = grid.reshape(9, 2) + rng.uniform(-0.07, 0.07, (9, 2))
    strokes = []
    for _ in range(rng.integers(2, 4)):
        walk = [rng.integers(9)]
        for _ in range(rng.integers(1, 4)):
            far = np.linalg.norm(nodes - nodes[walk[-1]], axis=1)
            near = [n for n in range(9) if n not in walk and far[n] < 0.62]
            if near:
                walk.append(rng.choice(near))
        strokes.append(nodes[walk])
    return strokes
