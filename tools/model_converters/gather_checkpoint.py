r"""Write a sharded checkpoint, a folder, as one file.

    python tools/model_converters/gather_checkpoint.py \ work_dirs/run/epoch_3.pth epoch_3.pth

takes a whole folder that mmrank.FSDPStrategy has saved. The file has all of it, as in mmengine's
Runner, with state per sample as one table, for any number of processes. The tensors have to fit in
the memory of this process; --weights-only leaves the optimiser's out.
"""

import argparse
import sys

import torch

from mmrank.apis.entry_point import add_trust_option
from mmrank.checkpoint_loading import guard_checkpoints
from mmrank.engine.sharded.checkpoint import load_sharded
from mmrank.errors import show_user_errors
from mmrank.files import check_output, replace_atomically
from mmrank.state.shard_files import SHARD_FILES_KEY, whole_tables
from mmrank.state.sharding import SHARDS_KEY

#: What a test or a fine-tuning takes from a checkpoint.
WEIGHTS = ('state_dict', 'meta', 'message_hub')


@show_user_errors(OSError)
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('folder', metavar='FOLDER', help='checkpoint')
    parser.add_argument('out', metavar='OUT', help='.pth file to write')
    parser.add_argument(
        '--weights-only', action='store_true', help='leave out what only a resumed training needs'
    )
    add_trust_option(parser)
    args = parser.parse_args()
    check_output(args.out)
    guard_checkpoints(args.trust_checkpoint)
    without = ('optimizer', 'ema_state_dict') if args.weights_only else ()
    checkpoint = load_sharded(args.folder, without=without)
    join_tables(checkpoint, args.folder)
    if args.weights_only:
        checkpoint = {k: v for k, v in checkpoint.items() if k in WEIGHTS}
    with replace_atomically(args.out) as path:
        torch.save(checkpoint, path)
    print(f'Wrote {len(checkpoint["state_dict"])} tensors to {args.out}')


def join_tables(checkpoint: dict, folder: str) -> None:
    """Replace the shards of a checkpoint by whole tables, in place."""
    names = checkpoint.pop(SHARD_FILES_KEY, None)
    tables = whole_tables(folder, names) if names else {}
    # The EMAHook exchanges the values of both.
    for part, prefix in (('state_dict', ''), ('ema_state_dict', 'module.')):
        if part in checkpoint:
            for key, table in tables.items():
                module = key.rpartition('.')[0]
                checkpoint[part].pop(f'{prefix}{module}.{SHARDS_KEY}', None)
                checkpoint[part][prefix + key] = table


if __name__ == '__main__':
    sys.exit(main())
