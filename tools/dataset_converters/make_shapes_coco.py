"""Generate a small COCO-format detection set of textured shapes.

Everything follows from the seed: the same options write the same files. Use it where no real data
set can be had, to try a config in minutes:

    python tools/dataset_converters/make_shapes_coco.py --out data/shapes_coco

writes train, val and test images and annotations/{train,val,test}.json, which
configs/_base_/datasets/shapes_coco.py reads.
"""

import sys
import time

from rich.console import Console

from mmrank.cli.options import tool_parser
from mmrank.datasets.shapes_coco import ShapesSpec, write_shapes_coco
from mmrank.errors import show_user_errors


@show_user_errors(ValueError, OSError)
def main() -> None:
    spec = ShapesSpec()
    parser = tool_parser(
        __doc__,
        out=(
            'data/shapes_coco',
            'folder to write to; it is made if needed, files of the same names are replaced',
        ),
        num_train=(spec.num_train, 'train images'),
        num_val=(spec.num_val, 'val images'),
        num_test=(spec.num_test, 'test images'),
        seed=(spec.seed, 'seed'),
        num_classes=(spec.num_classes, '1 to 8'),
        imbalance=(spec.imbalance, 'how many times more frequent class 1 is than the last'),
        mean_objects=(spec.mean_objects, 'objects per image'),
    )
    diameters = 'object diameters in pixels, drawn log-uniformly'
    for name, value, names, text in (
        ('image', (spec.width, spec.height), ('WIDTH', 'HEIGHT'), 'pixels'),
        ('object', (spec.min_size, spec.max_size), ('MIN', 'MAX'), diameters),
    ):
        shown = f'{text} (default: %(default)s)'
        pair = dict(type=type(value[0]), nargs=2, metavar=names, default=value, help=shown)
        parser.add_argument(f'--{name}-size', **pair)
    options = vars(parser.parse_args())
    out = options.pop('out')
    width, height = options.pop('image_size')
    smallest, largest = options.pop('object_size')
    sizes = dict(width=width, height=height, min_size=smallest, max_size=largest)
    spec = ShapesSpec(**sizes, **options)
    console = Console()
    start = time.monotonic()
    files = write_shapes_coco(out, spec, console)
    seconds = time.monotonic() - start
    console.print(f'Wrote {out} in {seconds:.1f} s. See it: mmrank check coco {files["train"]}')


if __name__ == '__main__':
    sys.exit(main())
