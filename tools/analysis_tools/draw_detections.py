"""Draw ground truth and the boxes of one or more detectors side by side.

    python tools/analysis_tools/draw_detections.py data/x/val.json \
        data/x/val "stable AP=work_dirs/a/val.bbox.json" \
        "focal=work_dirs/b/val.bbox.json" --out detections.png

Each model shows the boxes above its own best-F1 score per class, since scores of a ranking loss are
ordered but not calibrated. Solid boxes match an object of their class at IoU 0.5, dashed ones do
not.
"""

import argparse
import sys
from pathlib import Path

from mmrank.errors import show_user_errors

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib.coco.box_evaluation import load_ground_truth
from lib.coco.detections import draw_detections
from lib.coco.tables import named_evaluations
from lib.common.command_line import check_outputs, tool_parser


def parse_args() -> argparse.Namespace:
    parser = tool_parser(
        __doc__,
        out=('detections.png', 'PNG to write'),
        num_images=(6, 'images, spread over the file'),
    )
    add = parser.add_argument
    add('ann_file', help='COCO annotation file')
    add('image_dir', help='folder of its images')
    add('predictions', nargs='+', metavar='[NAME=]FILE', help='*.bbox.json of a model')
    return parser.parse_args()


@show_user_errors(OSError, ValueError)
def main() -> None:
    args = parse_args()
    check_outputs(args, 'out')
    truth = load_ground_truth(args.ann_file)
    evaluations = named_evaluations(truth, args.predictions)
    drawn = draw_detections(evaluations, args.image_dir, args.out, num_images=args.num_images)
    print(f'Wrote {drawn}')


if __name__ == '__main__':
    sys.exit(main())
