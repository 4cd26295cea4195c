r"""Turn a detector of mmrank into a config and a checkpoint of mmdet.

  python tools/model_converters/to_stock.py CONFIG CHECKPOINT stock/detector

writes stock/detector.py and stock/detector.pth, which need mmdet alone:

  inferencer = DetInferencer('stock/detector.py', 'stock/detector.pth')

The head becomes the one that it was made from. The centre of the scores moves into the bias of the
classification layer, so boxes and scores stay the same. Averaged weights (EMAHook) are taken where
the training kept them. Hooks, data sets and losses of mmrank become their stock counterparts or go;
each is printed, and an entry without a counterpart is refused by name.

exit status: 0 written, 2 wrong input (see the message).
"""

import argparse
import sys

from mmrank.apis.entry_point import add_config_option, add_trust_option, apply_options, read_config
from mmrank.apis.publishing import describe_centre
from mmrank.apis.stock_model import stock_paths, write_stock_model
from mmrank.checkpoint_loading import guard_checkpoints
from mmrank.errors import show_user_errors


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('config', help='config of the training')
    parser.add_argument('checkpoint', help='.pth file of the training')
    parser.add_argument('out', help='name of the new files, without the ending .py or .pth')
    add_config_option(parser)
    add_trust_option(parser)
    return parser.parse_args()


@show_user_errors(OSError)
def main() -> None:
    """Write both files and say what changed."""
    args = parse_args()
    guard_checkpoints(args.trust_checkpoint)
    cfg = read_config(args.config)
    apply_options(cfg, args.cfg_options)
    model = write_stock_model(cfg, args.checkpoint, args.out, args.trust_checkpoint)
    for change in model.changes:
        print(change)
    for centre in model.centres:
        if centre.folded:
            print(describe_centre(centre))
        else:
            print(f'{centre.head}: {centre.reason}')
    print('Wrote {} and {}'.format(*stock_paths(args.out)))


if __name__ == '__main__':
    sys.exit(main())
