r"""Turn COCO boxes into a table of labels: which classes does an image show?

    python tools/dataset_converters/coco_to_labels.py \
        data/mine/annotations/train.json data/mine/train.csv

writes one line an image, its file name and 0 or 1 for each class, which mmrank.MultiLabelCSV reads.
Images without a box have only zeros.
"""

import sys

from rich.console import Console

from mmrank.annotations.check import read_checked
from mmrank.cli.options import tool_parser
from mmrank.errors import show_user_errors
from mmrank.files import check_output, write_csv_atomically


@show_user_errors(OSError)
def main() -> None:
    parser = tool_parser(__doc__)
    parser.add_argument('ann_file', metavar='COCO.json', help='annotations')
    parser.add_argument('out', metavar='OUT.csv', help='table to write')
    args = parser.parse_args()
    check_output(args.out, args.ann_file)
    document, _ = read_checked(args.ann_file)
    names = {x['id']: x['name'] for x in document['categories']}
    files = {x['id']: x['file_name'] for x in document['images']}
    classes = {file: set() for file in files.values()}
    for box in document['annotations']:
        classes[files[box['image_id']]].add(box['category_id'])
    rows = [[file, *(int(x in found) for x in names)] for file, found in classes.items()]
    header = ['image', *names.values()]
    write_csv_atomically([header, *rows], args.out)
    counts = {name: sum(row[k] for row in rows) for k, name in enumerate(header[1:], 1)}
    Console().print(
        f'Wrote {args.out}: {len(rows)} images; with '
        + ', '.join(f'{name} {n}' for name, n in counts.items()),
        soft_wrap=True,
        highlight=False,
    )


if __name__ == '__main__':
    sys.exit(main())
