r"""Generate a small class-folder data set of made-up glyphs.

Everything follows from the seed: the same options write the same files. One class is one glyph, a
few polylines; its samples are drawings with moved corners, turned, scaled and shifted. Use it where
no real data set can be had, to try a retrieval config in minutes:

    python tools/dataset_converters/make_glyphs.py data/glyphs \
        --classes 60 --per-class 20

writes OUT/glyph_<class>/<drawing>.png, grey, ink white on black, which
configs/_base_/datasets/class_folder_glyphs.py reads.
"""

import sys
from pathlib import Path

import cv2
import numpy as np
from rich.console import Console
from rich.progress import track

from mmrank.cli.options import parse_at_least, tool_parser
from mmrank.errors import show_user_errors

# Lines are drawn on a finer grid and shrunk: smooth at any size.
_SUPERSAMPLING = 4
# Standard deviation of a corner's place, as a share of the side.
_JITTER = 0.03
# Largest angle of a drawing, in degrees.
_ROTATION = 12.0


def draw_glyph(label: int, sample: int, size: int = 28, seed: int = 0) -> np.ndarray:
    strokes = _invent(np.random.default_rng([seed, label]))
    rng = np.random.default_rng([seed, label, 1 + sample])
    angle = np.deg2rad(rng.uniform(-_ROTATION, _ROTATION))
    cos = np.cos(angle)
    sin = np.sin(angle)
    turn = np.array([[cos, -sin], [sin, cos]]) * rng.uniform(0.85, 1.05)
    shift = 0.5 + rng.uniform(-0.04, 0.04, 2)
    side = size * _SUPERSAMPLING
    canvas = np.zeros((side, side), np.uint8)
    thickness = max(1, round(side * rng.uniform(0.045, 0.065)))
    for stroke in strokes:
        moved = stroke + rng.normal(0, _JITTER, stroke.shape)
        points = np.rint(((moved - 0.5) @ turn.T + shift) * side).astype(np.int32)
        cv2.polylines(canvas, [points], False, 255, thickness, cv2.LINE_AA)
    return cv2.resize(canvas, (size, size), interpolation=cv2.INTER_AREA)


def write_glyphs(
    out_dir: str | Path, classes: int, per_class: int, size: int = 28, seed: int = 0
) -> None:
    digits = len(str(max(classes, per_class) - 1))
    for label in track(range(classes), 'Glyphs', transient=True):
        folder = Path(out_dir) / f'glyph_{label:0{digits}d}'
        folder.mkdir(parents=True, exist_ok=True)
        for sample in range(per_class):
            path = folder / f'{sample:0{digits}d}.png'
            if not cv2.imwrite(str(path), draw_glyph(label, sample, size, seed)):
                raise OSError(
                    f'cannot write image {path}: is the disk full or the folder read-only?'
                )


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


@show_user_errors(OSError, ValueError)
def main() -> None:
    parser = tool_parser(
        __doc__,
        classes=(20, 'glyphs'),
        per_class=(10, 'drawings of each'),
        size=(28, 'side of the images in pixels, at least 8'),
        seed=(0, 'another one invents other glyphs'),
    )
    parser.add_argument('out', metavar='OUT', help='folder to write to')
    args = parse_at_least(parser, classes=1, per_class=1, size=8, seed=0)
    write_glyphs(args.out, args.classes, args.per_class, args.size, args.seed)
    Console().print(
        f'Wrote {args.out}: {args.classes} glyphs x {args.per_class} '
        f'drawings of {args.size} x {args.size} pixels.'
    )


if __name__ == '__main__':
    sys.exit(main())
