"""Generate a small COCO-format detection set of textured shapes.

Everything follows from the seed: the same options write the same files. Use it where no real data
set can be had, to try a config in minutes:

    python tools/dataset_converters/make_shapes_coco.py --out data/shapes_coco

writes train, val and test images and annotations/{train,val,test}.json, which
configs/_base_/datasets/shapes_coco.py reads.
"""

import argparse
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from mmrank.datasets.checks.coco_inspect import inspect_coco_file
from mmrank.errors import show_user_errors

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from research.synthetic.shapes_coco import ShapesSpec, write_shapes_coco


def parse_args() -> argparse.Namespace:
    """Read the command line; defaults are those of ShapesSpec."""
    spec = ShapesSpec()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    out = (
        'folder to write to (default: %(default)s); it is made if needed, files of the same names '
    )
    add('--out', default='data/shapes_coco', help=out + 'are replaced')
    for name, value, text in (
        ('num-train', spec.num_train, 'train images'),
        ('num-val', spec.num_val, 'val images'),
        ('num-test', spec.num_test, 'test images'),
        ('seed', spec.seed, 'seed'),
        ('num-classes', spec.num_classes, '1 to 8'),
        ('imbalance', spec.imbalance, 'how many times more frequent class 1 is than the last'),
        ('mean-objects', spec.mean_objects, 'objects per image'),
    ):
        add(f'--{name}', type=type(value), default=value, help=f'{text} (default: %(default)s)')
    for name, value, names, text in (
        ('image-size', (spec.width, spec.height), ('WIDTH', 'HEIGHT'), 'pixels'),
        (
            'object-size',
            (spec.min_size, spec.max_size),
            ('MIN', 'MAX'),
            'object diameters in pixels, drawn log-uniformly',
        ),
    ):
        shown = f'{text} (default: %(default)s)'
        add(f'--{name}', type=type(value[0]), nargs=2, metavar=names, default=value, help=shown)
    kinds = 'jpg is small; png has the same pixels with every JPEG library (default: %(default)s)'
    add('--format', choices=('jpg', 'png'), default=spec.image_format, help=kinds)
    return parser.parse_args()


def size_table(files: dict) -> Table:
    """Objects per class and COCO size, one column a split."""
    table = Table(title='Objects per class: total (small < 32² px / medium / large > 96² px)')
    table.add_column('class')
    reports = {s: inspect_coco_file(f) for s, f in files.items()}
    for split, report in reports.items():
        table.add_column(f'{split}: {report.num_images} images', justify='right')
    first = next(iter(reports.values()))
    for name in first.counts:
        counts = [report.counts[name] for report in reports.values()]
        table.add_row(name, *(f'{c.total} ({c.small}/{c.medium}/{c.large})' for c in counts))
    table.add_section()
    table.add_row(
        'images without objects', *(str(report.num_empty_images) for report in reports.values())
    )
    return table


@show_user_errors(ValueError, OSError)
def main() -> None:
    """Generate the data set and show what is in it."""
    args = parse_args()
    spec = ShapesSpec(
        num_train=args.num_train,
        num_val=args.num_val,
        num_test=args.num_test,
        width=args.image_size[0],
        height=args.image_size[1],
        num_classes=args.num_classes,
        imbalance=args.imbalance,
        mean_objects=args.mean_objects,
        min_size=args.object_size[0],
        max_size=args.object_size[1],
        seed=args.seed,
        image_format=args.format,
    )
    console = Console()
    start = time.monotonic()
    with Progress(console=console, transient=True) as progress:
        tasks = {
            split: progress.add_task(split, total=total)
            for split, total in spec.split_sizes().items()
        }
        files = write_shapes_coco(
            args.out, spec, lambda split, done, _: progress.update(tasks[split], completed=done)
        )
    console.print(size_table(files))
    seconds = time.monotonic() - start
    console.print(f'Wrote {args.out} in {seconds:.1f} s.')


if __name__ == '__main__':
    sys.exit(main())
