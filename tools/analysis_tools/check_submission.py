r"""Check a file of detections for COCO's test server, and pack it.

    python tools/analysis_tools/check_submission.py work_dirs/NAME/test-dev.bbox.json \
        data/coco/annotations/image_info_test-dev2017.json \
        --zip detections_test-dev2017_NAME_results.zip

docs/pages/tools.md tells how tools/test.py writes the file. The server takes a list of {"image_id":
integer, "category_id": integer, "bbox": [x, y, width, height], "score": number} as the only file of
a zip archive, and counts the 100 best boxes of an image.
"""

import argparse
import json
import zipfile
from collections import Counter
from pathlib import Path

from mmrank.apis.coco.box_evaluation import check_predictions, load_predictions, shown_box
from mmrank.apis.common.command_line import tool_parser
from mmrank.datasets.checks.coco_inspect import inspect_coco
from mmrank.datasets.checks.coco_reading import read_coco_json
from mmrank.errors import UserError, show_user_errors

#: Boxes of an image that count.
COUNTED = 100


def parse_args() -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument('results', help='*.bbox.json of CocoMetric')
    parser.add_argument('images', help='the JSON file of the images, with their categories')
    parser.add_argument(
        '--zip',
        metavar='OUT.zip',
        help='write the archive to send; the file in it has the same name '
        'with .json, and the server expects detections_<test set>_<method>_results',
    )
    args = parser.parse_args()
    if args.zip and not args.zip.endswith('.zip'):
        parser.error('--zip must end in .zip')
    return args


def check_ids(boxes: list[dict], where: str) -> None:
    """Check the JSON type of ids that COCO's server asks for."""
    for index, box in enumerate(boxes):
        if type(box['image_id']) is not int or type(box['category_id']) is not int:
            raise UserError(
                f'{where}, box {index}: {shown_box(box)}. Fix: image_id and category_id have to be '
                'integers'
            )


@show_user_errors(OSError)
def main() -> None:
    args = parse_args()
    boxes = load_predictions(args.results)
    if not boxes:
        raise UserError(
            f'{args.results} has no box: its AP is 0. Fix: look at score_thr and at the checkpoint'
        )
    document = read_coco_json(args.images)
    inspect_coco(document, args.images, require_annotations=False).raise_if_bad()
    images, categories = (
        {entry['id']: entry for entry in document[key]} for key in ('images', 'categories')
    )
    check_ids(boxes, args.results)
    check_predictions(boxes, images, categories, f'boxes of {args.results}')
    per_image = Counter(box['image_id'] for box in boxes)
    print(
        f'{len(boxes)} boxes in {len(per_image)} of {len(images)} images, '
        f'{len({box["category_id"] for box in boxes})} of {len(categories)} '
        'categories: they may be sent'
    )
    full = sum(number > COUNTED for number in per_image.values())
    if full:
        print(f'{full} images have more than {COUNTED} boxes, of which the best {COUNTED} count')
    if args.zip:
        name = Path(args.zip).with_suffix('.json').name
        with zipfile.ZipFile(args.zip, 'w', zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, json.dumps(boxes))
        print(f'Wrote {args.zip} with {name}')


if __name__ == '__main__':
    raise SystemExit(main())
