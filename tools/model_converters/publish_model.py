"""Make a checkpoint ready to hand out: weights alone, a hash in the name.

  python tools/model_converters/publish_model.py work_dirs/NAME/epoch_12.pth NAME.pth

writes NAME-1a2b3c4d.pth, which torch.load(weights_only=True) reads. Its config names no folder of
this machine. For mmdet without mmrank convert it with tools/model_converters/to_stock.py.
"""

import sys

from mmrank.apis.common.command_line import tool_parser
from mmrank.apis.entry_point import add_trust_option
from mmrank.errors import show_user_errors
from publishing import publish_model


@show_user_errors(OSError)
def main() -> None:
    parser = tool_parser(__doc__)
    parser.add_argument('checkpoint', help='.pth file of a training')
    parser.add_argument('out', help='name of the new file; the hash goes before its .pth')
    add_trust_option(parser)
    args = parser.parse_args()
    path, digest = publish_model(args.checkpoint, args.out, args.trust_checkpoint)
    print(f'Wrote {path}, {path.stat().st_size / 1e6:.1f} MB')
    print(f'sha256 {digest}')


if __name__ == '__main__':
    sys.exit(main())
