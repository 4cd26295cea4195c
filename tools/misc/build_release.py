r"""Train the small models of a release and write their weights.

  python tools/misc/build_release.py --list --data-root DATA
  python tools/misc/build_release.py --data-root DATA --out release
  python tools/misc/build_release.py --data-root DATA --out release \
      two-tower64_unbiased-square_ml-1m

writes release/NAME-1a2b3c4d.pth, and release/NAME.json with its hash and what tools/test.py
measures. The same command goes on after an interruption, from release/build. --register writes the
models into the model index (configs/*/metafile.yml) and the table of docs/pages/models.md. DATA
holds bccd/, omniglot/, cifar10/ and ml1m/; --list says which file each model needs.
"""

from mmrank.interruption import AGAIN, end_on_signals

if __name__ == '__main__':
    end_on_signals(AGAIN)  # the imports below take seconds
import argparse
import os
import signal
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from mmrank.errors import UserError, show_user_errors

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib.common.command_line import tool_parser
from lib.common.folder_lock import lock_folder
from lib.release import Asset, Record, build, chosen_assets, read_record, register, state_of

ROOT = Path(__file__).resolve().parents[2]


def parse_args() -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument('names', nargs='*', metavar='NAME', help='models (default: all)')
    parser.add_argument('--out', default='work_dirs/release', help='default: %(default)s')
    parser.add_argument('--data-root', default='data', help='default: %(default)s')
    parser.add_argument('--list', action='store_true', help='show the models and end')
    parser.add_argument(
        '--register', action='store_true', help='write what is built into the model index and docs/'
    )
    parser.add_argument('--url', default='', help='folder of the files, for the model index')
    return parser.parse_args()


def show(assets: list[Asset], out: Path, data: Path, console: Console) -> None:
    """Show what there is of each model."""
    names = ('model', 'state', 'data', 'test metrics', 'MB')
    table = Table(*(Column(name, overflow='fold') for name in names))
    for asset in assets:
        record = read_record(asset.name, out)
        found = '' if asset.data.is_there(data) else ' (not there)'
        table.add_row(
            asset.name,
            state_of(asset, out, ROOT),
            f'{asset.data.folder}/{asset.data.needed}{found}',
            _metrics(asset, record) if record else '',
            f'{record.size / 1e6:.1f}' if record else '',
        )
    console.print(table)


def _metrics(asset: Asset, record: Record) -> str:
    return ', '.join(
        f'{name} {asset.scale * record.metrics[key]:.1f}'
        for key, name in asset.metrics.items()
        if key in record.metrics
    )


def run(args: argparse.Namespace, console: Console) -> None:
    """Build what is missing."""
    assets = chosen_assets(args.names)
    out, data = Path(args.out).resolve(), Path(args.data_root).resolve()
    if args.list:
        show(assets, out, data, console)
        return
    folder = out / 'build'
    with lock_folder(folder):
        os.chdir(folder)
        failed = {}
        for number, asset in enumerate(assets, 1):
            console.rule(f'{number}/{len(assets)} {asset.name}')
            if state_of(asset, out, ROOT) == 'built':
                console.print('is built already')
                continue
            console.print(f'data/{asset.data.target}: preparing, if needed')
            try:
                asset.data.prepare(data, folder, ROOT / 'tools' / 'dataset_converters')
                record = build(asset, out, ROOT, console)
            except UserError as error:
                failed[asset.name] = error
                console.print(str(error), markup=False, highlight=False)
                continue
            console.print(f'wrote {out / record.file}: {_metrics(asset, record)}')
    show(assets, out, data, console)
    if args.register:
        ready = [x for x in assets if state_of(x, out, ROOT) == 'built']
        for path in register(ready, out, ROOT, args.url):
            console.print(f'wrote {path}')
    if failed:
        raise UserError(f'not built: {", ".join(failed)}. Fix: see the messages above')


@show_user_errors(OSError, on_interrupt=AGAIN)
def main() -> None:
    args = parse_args()
    # A termination is treated as an interrupt: the training ends with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run(args, Console())


if __name__ == '__main__':
    sys.exit(main())
