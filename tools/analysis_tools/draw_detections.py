"""Draw ground truth and the boxes of one or more detectors side by side.

    python tools/analysis_tools/draw_detections.py data/x/val.json \
        data/x/val "stable AP=work_dirs/a/val.bbox.json" \
        "focal=work_dirs/b/val.bbox.json" --out detections.png

Each model shows the boxes above its own best-F1 score per class, since
scores of a ranking loss are ordered but not calibrated; --top-k shows a
fixed number an image instead. Solid boxes match an object of their class at
IoU 0.5, dashed ones do not.
"""

import argparse
import sys
from pathlib import Path

from mmrank.errors import show_user_errors
from mmrank.evaluation.box_evaluation import load_ground_truth

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from research.coco.detections import draw_detections
from research.coco.tables import named_evaluations


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('ann_file', help='COCO annotation file')
    parser.add_argument('image_dir', help='folder of its images')
    parser.add_argument(
        'predictions',
        nargs='+',
        metavar='[NAME=]FILE',
        help='results file (*.bbox.json) of a model, with the name to show',
    )
    parser.add_argument('--out', default='detections.png', help='default: %(default)s')
    parser.add_argument(
        '--num-images',
        type=int,
        default=6,
        help='images, spread over the file (default: %(default)s)',
    )
    parser.add_argument('--image-ids', type=int, nargs='+', help='draw these images instead')
    parser.add_argument('--top-k', type=int, help='draw the K best boxes of each image')
    return parser.parse_args()


@show_user_errors(OSError, ValueError)
def main() -> int:
    """Evaluate and draw."""
    args = parse_args()
    truth = load_ground_truth(args.ann_file)
    evaluations = named_evaluations(truth, args.predictions)
    path = draw_detections(
        evaluations,
        args.image_dir,
        args.out,
        image_ids=args.image_ids,
        num_images=args.num_images,
        top_k=args.top_k,
    )
    print(f'Wrote {path}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
