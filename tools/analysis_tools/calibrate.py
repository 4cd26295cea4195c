r"""Make probabilities of the scores of a detector or one-vs-rest classifier.

A map for each class, fitted on predictions of a validation split, keeps order, ties and AP:

  # a detector, from the *.bbox.json of its CocoMetric
  python tools/analysis_tools/calibrate.py val.bbox.json data/x/val.json \
      --test test.bbox.json data/x/test.json --checkpoint epoch_12.pth

  # a classifier, from dumps of mmrank test --out
  python tools/analysis_tools/calibrate.py val.pkl --test test.pkl --checkpoint epoch_12.pth

writes calibration.json, the maps, and for each split a table and reliability diagrams (.md, .csv,
.png), and prints the three lines of a config that uses the maps.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from calibration.report import report
from calibration.splits import SampleSplit
from mmrank.calibration.calibration_file import weights_digest
from mmrank.cli.config_options import add_trust_option
from mmrank.cli.options import parse_at_least, tool_parser
from mmrank.engine.resume.matching import model_state
from mmrank.errors import UserError, show_user_errors
from mmrank.imports import required_package
from mmrank.runners.models import read_weights

FILE = 'calibration.json'


def read_split(files: Sequence[str], classes: Sequence[str] | None, iou: float):
    """Read and judge the predictions of a split; a detector's come with annotations."""
    predictions, *rest = files
    if len(rest) > 1:
        what = f'a split is one prediction file and one annotation file, got {" ".join(files)}'
        raise UserError(what, 'pass one split, and another one by --test')
    if not predictions.endswith('.json'):
        return SampleSplit.read(predictions, classes)
    if not rest:
        what = f'{predictions} has boxes, which annotations are needed to judge'
        raise UserError(what, f'pass the COCO file after it: {predictions} val.json')
    # pycocotools is for boxes only.
    from calibration.box_split import BoxSplit

    return BoxSplit.read(predictions, rest[0], classes, iou)


@show_user_errors(OSError)
def main() -> None:
    parser = tool_parser(
        __doc__,
        checkpoint=(
            None,
            '.pth file of the model: its classes go into the maps, and other weights are refused '
            'later; None: classes of the annotations, weights not compared',
        ),
        iou=(0.5, 'IoU from which a box is right'),
        pooled=(False, 'fit one map for all classes'),
        min_each=(10, 'right and wrong scores that a class needs for a map of its own'),
        out_dir='work_dirs/calibration',
    )
    add = parser.add_argument
    add(
        'val',
        nargs='+',
        metavar='PREDICTIONS [COCO.json]',
        help='predictions of the validation split, and for a detector its annotations',
    )
    add(
        '--test',
        nargs='+',
        metavar='FILE',
        help='the same of a test split, to judge the maps on (default: none; the figures of the '
        'split that they are fitted on flatter them)',
    )
    add_trust_option(parser)
    args = parse_at_least(parser, min_each=1)
    if not 0 < args.iou <= 1:
        parser.error('--iou must be in (0, 1]')
    classes = digest = None
    if args.checkpoint is not None:
        checkpoint = read_weights(args.checkpoint, args.trust_checkpoint)
        meta = (checkpoint.get('meta') or {}).get('dataset_meta') or {}
        if meta.get('classes') is not None:
            classes = list(map(str, meta['classes']))
        digest = weights_digest(model_state(checkpoint))
    val = read_split(args.val, classes, args.iou)
    splits = {'val': val}
    if args.test:
        splits['test'] = read_split(args.test, classes, args.iou)
        if type(splits['test']) is not type(val):
            what = '--test has predictions of another kind than the validation split'
            raise UserError(what, 'pass two splits of one model')
        if splits['test'].same_as(val):
            sys.stderr.write(
                'warning: the test split has images of the validation split, '
                'on which the maps are fitted: its figures flatter them\n'
            )
    with required_package('sklearn', 'fitting', 'pip install scikit-learn'):
        from calibration.fitting import fit_calibration
    calibration = fit_calibration(val.judged, args.iou, args.min_each, args.pooled, digest)
    folder = Path(args.out_dir)
    written = [calibration.write(folder / FILE)]
    for name, split in splits.items():
        written += report(name, split, calibration, folder)
    shared = [x.name for x in calibration.maps if x.pooled]
    if shared and not args.pooled:
        print(
            f'{len(shared)} classes have the map of all classes together: {", ".join(shared[:10])}'
        )
    if digest is None:
        print(
            'Without --checkpoint the maps do not know their weights: any '
            'model with these classes takes them.'
        )
    print(f'Wrote {", ".join(map(str, written))}')
    print(
        "In a config: model = dict(type='mmrank.CalibratedModel', model_type='<type of the "
        f"model>', calibration='{written[0]}')"
    )


if __name__ == '__main__':
    sys.exit(main())
