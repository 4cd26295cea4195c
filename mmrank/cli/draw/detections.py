r"""Draw the boxes of detectors beside the annotations.

    mmrank draw detections data/x/val.json data/x/val \
        "stable AP=work_dirs/a/val.bbox.json" "focal=work_dirs/b/val.bbox.json"

Each detector shows the boxes above the score with the best F1 of their class, or another figure of
mmrank draw froc (--at recall@fp1). A solid box matches an object of its class at IoU 0.5, a dashed
one does not.
"""

from mmrank.cli.draw.predictions import add_predictions, read_evaluations
from mmrank.cli.options import check_outputs, tool_parser
from mmrank.evaluation.operating_points import parse_figure
from mmrank.pictures.detections import draw_detections


def main() -> None:
    parser = tool_parser(
        __doc__,
        out=('detections.png', 'PNG to write'),
        num_images=(6, 'images, spread over the file'),
        at=('f1', 'figure at whose score each class is cut'),
    )
    add_predictions(parser, image_dir='folder of its images')
    args = parser.parse_args()
    check_outputs(args, 'out')
    parse_figure(args.at)
    _, evaluations = read_evaluations(args)
    drawn = draw_detections(evaluations, args.image_dir, args.out, args.num_images, args.at)
    print(f'Wrote {drawn}')
