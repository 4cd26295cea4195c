"""The GPU benchmark runs on the CPU as well, at a small size."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_pairwise_gpu_on_the_cpu():
    options = (
        '--anchors 300 --classes 10 --positives 120 --repeats 1 '
        '--device cpu --method intervals --kinds trained --dtypes float32'
    )
    script = 'tools/benchmarks/pairwise_gpu.py'
    done = subprocess.run(
        [sys.executable, script, *options.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=dict(os.environ, COLUMNS='160', OMP_NUM_THREADS='1'),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = re.findall(r'│ (copy|pairwise|focal)[^│]*│ +([\d.]+)', done.stdout)
    assert [name for name, _ in rows] == ['copy', 'pairwise', 'focal']
    assert all(float(took) > 0 for _, took in rows)
    # On the CPU, the torch path is compared with itself.
    assert 'relative to the torch path 0.0e+00' in done.stdout
