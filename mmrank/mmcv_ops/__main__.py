"""Put ``_ext.py`` into mmcv, so that every process finds the operators of mmrank.

A script that imports mmdet before mmrank needs it, or a worker that is spawned. A compiled
``_ext`` in the same folder comes first.
"""

import argparse
import importlib.util
import sys
from pathlib import Path

TEXT = """\
# Written by `python -m mmrank.mmcv_ops`; a compiled _ext in this folder comes first.
from mmrank.mmcv_ops.extension import *  # noqa: F403
from mmrank.mmcv_ops.extension import __getattr__  # noqa: F401
"""


def main() -> int:
    """Write the file, or remove it; 1 where there is no mmcv."""
    parser = argparse.ArgumentParser(prog='python -m mmrank.mmcv_ops', description=__doc__)
    parser.add_argument('--remove', action='store_true', help='remove the file')
    args = parser.parse_args()
    mmcv = importlib.util.find_spec('mmcv')
    if mmcv is None or mmcv.origin is None:
        sys.stderr.write('error: mmcv is not installed.\n  Fix: pip install mmcv-lite\n')
        return 1
    path = Path(mmcv.origin).with_name('_ext.py')
    if args.remove:
        path.unlink(missing_ok=True)
    else:
        path.write_text(TEXT, encoding='utf-8')
    sys.stdout.write(f'{path} {"removed" if args.remove else "written"}\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
