"""Convert labels of YOLO, VOC or CSV to a COCO annotation file, and check it.

    mmrank convert labels --from yolo --images images --out train.json

SOURCE is the folder of the .txt files of yolo (class, centre and size in fractions; of yolo-seg
class and polygon) or of the .xml files of voc, and the file of csv. Its columns are image, class
and xmin, ymin, xmax, ymax or x, y, width, height; without a header image, xmin, ymin, xmax, ymax,
class. VOC counts pixels from 1, unless a corner is at 0. Difficult objects of VOC and groups of
OpenImages become crowds, which are neither trained on nor counted.

exit status: 0 written, 1 an error in the labels, 2 nothing could be read or written.
"""

import json
import sys
from pathlib import Path

from mmrank.annotations.check import inspect_coco
from mmrank.annotations.documents import make_document
from mmrank.annotations.labels.classes import read_classes
from mmrank.annotations.labels.pictures import Faults, Pictures
from mmrank.annotations.labels.readers import READERS
from mmrank.annotations.text_tables import read_lines
from mmrank.cli.options import tool_parser
from mmrank.errors import UserError
from mmrank.files import check_output, write_atomically


def main() -> int:
    parser = tool_parser(__doc__)
    add = parser.add_argument
    add('source', type=Path, help='folder of the labels, for csv the file')
    add('--from', dest='form', required=True, choices=READERS, help='form of the labels')
    add('--images', type=Path, required=True, help='folder of the images')
    add('--out', required=True, help='COCO file to write')
    classes = 'names in the order of the labels: a data.yaml, a COCO file, or a name a line'
    add('--classes', metavar='FILE', help=classes)
    only = 'text file with the names of the images to take, one a line'
    add('--list', metavar='FILE', help=only)
    args = parser.parse_args()
    kind = 'file' if args.form == 'csv' else 'folder'
    if not (args.source.is_file() if args.form == 'csv' else args.source.is_dir()):
        raise UserError(f'{args.source} is not a {kind}. Fix: the {kind} with the labels')
    sources = [args.source, *filter(None, (args.classes, args.list))]
    check_output(args.out, *sources)
    pictures = Pictures(args.images)
    classes = read_classes(args.classes)
    faults = Faults()
    if args.list:
        names = [x.strip() for x in read_lines(args.list) if x.strip()]
        chosen = [y.name for x in names for y in faults.of(pictures.find, x, args.list)]
        pictures.wanted = dict.fromkeys(sorted(chosen))
    found = [*READERS[args.form](args.source, pictures, classes, faults)]
    found = [x for x in found if x[0].name in pictures.wanted]
    if pictures.guessed:
        name, picture = next(iter(pictures.guessed.items()))
        number = len(pictures.guessed)
        print(f'{number} images are found by the end of their path alone: {name!r} is {picture}.')
    document = make_document(found, classes, faults)
    faults.raise_if_any()
    report = inspect_coco(document, args.out, args.images)
    if report.problems:
        print(report.describe(report.problems), file=sys.stderr)
    if not report.ok:
        return 1
    write_atomically(json.dumps(document).encode(), args.out)
    names = ', '.join(report.counts)
    print(
        f'Wrote {args.out}: {report.num_images} images, {report.num_empty_images} of them without '
        f'objects; {report.num_annotations} objects of {len(report.counts)} classes: {names}'
    )
    left_out = len(pictures.names) - report.num_images
    text = f'{left_out} of {len(pictures.names)} images left out, which no label or list names'
    print(f'{args.images}: {text}{pictures.passed_over()}')
    return 0
