"""The GPU benchmark runs on the CPU as well, at a small size."""

import re
from pathlib import Path

from forked_processes import run_script

ROOT = Path(__file__).parents[2]


def test_pairwise_gpu_on_the_cpu():
    options = (
        '--anchors 300 --classes 10 --positives 120 --repeats 1 '
        '--device cpu --method intervals --kinds trained --dtypes float32'
    )
    done = run_script(
        ROOT / 'tools/benchmarks/pairwise_gpu.py',
        *options.split(),
        cwd=ROOT,
        env=dict(COLUMNS='160'),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = re.findall(r'│ (copy|pairwise|focal)[^│]*│ +([\d.]+)', done.stdout)
    assert [name for name, _ in rows] == ['copy', 'pairwise', 'focal']
    assert all(float(took) > 0 for _, took in rows)
    # On the CPU, the torch path is compared with itself.
    assert 'relative to the torch path 0.0e+00' in done.stdout
