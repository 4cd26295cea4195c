"""A script that behaves like a training, for the queue of runs, and comparisons of it."""

import textwrap
from pathlib import Path

from mmrank.experiments.plan import Comparison, Method

# It fails with `fail=SEED` and dies at its first start with `die=SEED`. Its accuracy is better the
# nearer the rate is to 0.2, and better for the config b.py.
SCRIPT = """
    import json, os, pathlib, signal, sys
    config, _, work_dir, _, split, _, *options = sys.argv[1:]
    options = dict(option.split('=') for option in options)
    seed = options['randomness.seed']
    count = pathlib.Path(work_dir, 'count')
    times = int(count.read_text()) + 1 if count.exists() else 1
    count.write_text(str(times))
    print('start', times, 'of seed', seed, flush=True)
    if options.get('fail') == seed:
        sys.exit('something broke')
    if options.get('die') == seed and times == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    acc = 0.5 - abs(float(options.get('lr', 0.2)) - 0.2) + int(seed) / 1000
    acc += 0.1 * config.endswith('b.py') + (0.001 if seed == '1' else 0)
    metrics = {'acc': acc if split == 'test' else acc - 0.2, 'number': int(seed),
               'threads': os.environ['OMP_NUM_THREADS']}
    pathlib.Path(work_dir, 'result.json').write_text(json.dumps({'metrics': metrics}))
"""


def write_training(folder: Path) -> Path:
    """Write the script."""
    path = folder / 'fake_train.py'
    path.write_text(textwrap.dedent(SCRIPT))
    return path


def plan_of_one(folder: Path, seeds=(0, 1, 2), metric='number', **options) -> Comparison:
    """A comparison of one method, with what its training is to do."""
    config = folder / 'a.py'
    config.write_text('x = 1\n')
    method = Method('a', str(config), {key: str(value) for key, value in options.items()})
    return Comparison(folder / 'out', (method,), tuple(seeds), (metric,), 'a')
