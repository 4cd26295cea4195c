r"""Generate a small class-folder data set of made-up glyphs.

Everything follows from the seed: the same options write the same files. Use it where no real data
set can be had, to try a retrieval config in minutes:

    python tools/dataset_converters/make_glyphs.py data/glyphs \
        --classes 60 --per-class 20

writes OUT/glyph_<class>/<drawing>.png, grey, ink white on black, which
configs/_base_/datasets/class_folder_glyphs.py reads.
"""

import argparse
import sys

from rich.console import Console
from rich.progress import Progress

from glyphs import GlyphsSpec, write_glyphs
from mmrank.apis.common.command_line import tool_parser
from mmrank.errors import show_user_errors


def parse_args() -> argparse.Namespace:
    spec = GlyphsSpec()
    parser = tool_parser(
        __doc__,
        classes=(spec.num_classes, 'glyphs'),
        per_class=(spec.per_class, 'drawings of each'),
        size=(spec.size, 'side of the images in pixels'),
        seed=(spec.seed, 'seed'),
    )
    parser.add_argument('out', metavar='OUT', help='folder to write to')
    return parser.parse_args()


@show_user_errors(OSError, ValueError)
def main() -> None:
    options = vars(parse_args())
    out, classes = options.pop('out'), options.pop('classes')
    spec = GlyphsSpec(num_classes=classes, **options)
    with Progress(transient=True) as progress:
        task = progress.add_task('Glyphs', total=spec.num_classes)
        write_glyphs(out, spec, lambda done, _: progress.update(task, completed=done))
    Console().print(
        f'Wrote {out}: {spec.num_classes} glyphs x {spec.per_class} '
        f'drawings of {spec.size} x {spec.size} pixels.'
    )


if __name__ == '__main__':
    sys.exit(main())
