"""Draw ground truth and the boxes of one or more detectors side by side.

    mmrank draw detections data/x/val.json \
        data/x/val "stable AP=work_dirs/a/val.bbox.json" \
        "focal=work_dirs/b/val.bbox.json" --out detections.png

Each model shows the boxes above its own best-F1 score per class, since scores of a ranking loss are
ordered but not calibrated. Solid boxes match an object of their class at IoU 0.5, dashed ones do
not.
"""

from mmrank.apis.coco.detections import draw_detections
from mmrank.apis.commands.draw.predictions import add_predictions, read_evaluations
from mmrank.apis.common.command_line import check_outputs, tool_parser


def main() -> None:
    parser = tool_parser(
        __doc__,
        out=('detections.png', 'PNG to write'),
        num_images=(6, 'images, spread over the file'),
    )
    add_predictions(parser, image_dir='folder of its images')
    args = parser.parse_args()
    check_outputs(args, 'out')
    _, evaluations = read_evaluations(args)
    drawn = draw_detections(evaluations, args.image_dir, args.out, num_images=args.num_images)
    print(f'Wrote {drawn}')
