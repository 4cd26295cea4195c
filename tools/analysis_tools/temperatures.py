r"""What the temperatures of iSogCLR have become: tables and pictures.

    python tools/analysis_tools/temperatures.py CONFIG \
        work_dirs/run/epoch_10.pth work_dirs/run/epoch_20.pth

reads temperatures from the checkpoints and images from the config, without running the model.
Written to the out dir, for each kind of temperature (a bimodal model has two): history_NAME.csv and
.png (over the checkpoints); of the last one samples_NAME.csv, classes_NAME.csv (class frequency and
temperature, shares among the hottest and coldest), sheet_NAME.png (images).
"""

import re
import sys
from itertools import pairwise
from pathlib import Path

from mmengine.registry import DATASETS, init_default_scope
from rich.console import Console

from mmrank.cli.config_options import add_config_option, add_trust_option
from mmrank.cli.options import parse_at_least, tool_parser
from mmrank.errors import UserError, show_user_errors
from mmrank.pictures.temperature_report import write_history, write_temperature_report
from mmrank.pictures.temperatures import read_temperatures
from mmrank.runners.config import apply_options, read_config


def steps_of(checkpoints: list[str]) -> tuple[list[int], str]:
    """When the checkpoints were written, by their names: rising numbers and what they count."""
    found = [re.search(r'(\d+)\.pth$', Path(c).name) for c in checkpoints]
    steps = [int(match[1]) if match else 0 for match in found]
    if any(a >= b for a, b in pairwise(steps)) or not all(found):
        return list(range(1, len(checkpoints) + 1)), 'checkpoint'
    is_epoch = all('epoch' in Path(c).name for c in checkpoints)
    return steps, 'epoch' if is_epoch else 'iteration'


@show_user_errors(OSError, ValueError, TypeError, ImportError)
def main() -> None:
    parser = tool_parser(
        __doc__,
        out_dir=Path('work_dirs/temperatures'),
        images=(40, 'images of each kind on the sheet, 0 for none'),
    )
    parser.add_argument('config', metavar='CONFIG', help='of the training')
    parser.add_argument('checkpoints', nargs='+', metavar='CHECKPOINT', help='.pth files')
    add_config_option(parser)
    add_trust_option(parser)
    args = parse_at_least(parser, images=0)
    console = Console()
    readings = [read_temperatures(path, trust=args.trust_checkpoint) for path in args.checkpoints]
    names = [[found.name for found in reading] for reading in readings]
    if any(own != names[0] for own in names):
        raise UserError(
            f'the checkpoints have different temperatures: {names}. Fix: pass those of one training'
        )
    cfg = read_config(args.config)
    apply_options(cfg, args.cfg_options)
    if 'train_dataloader' not in cfg:
        raise ValueError(f'{args.config} has no train_dataloader')
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    # What the sampler of the training sees.
    dataset = DATASETS.build(cfg.train_dataloader.dataset)
    steps, unit = steps_of(args.checkpoints)
    out = args.out_dir
    for kind in zip(*readings):
        last = kind[-1]
        values = [found.tau[found.visited] for found in kind]
        for checkpoint, tau in zip(args.checkpoints, values):
            if not len(tau):
                what = f'{checkpoint}: {last.name}: no sample was visited yet'
                raise UserError(what, 'pass a later checkpoint')
        paths = write_history(steps, values, out, last.name, unit)
        more, correlation = write_temperature_report(last, dataset, out, args.images)
        tau = values[-1]
        lines = [
            f'{last.name}: {len(tau):,} of {len(last.tau):,} samples visited, temperature '
            f'{tau.mean():.4g} +- {tau.std():.2g}, {tau.min():.4g} to {tau.max():.4g}'
        ]
        if correlation:
            lines.append(f'class frequency and mean temperature: {correlation}')
        lines += [f'wrote {path}' for path in paths + more]
        for line in lines:
            console.print(line, markup=False, highlight=False, soft_wrap=True)


if __name__ == '__main__':
    sys.exit(main())
