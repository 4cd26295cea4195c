"""Compare losses on your data: ``mmrank compare``."""

from mmrank.apis.cli import run

if __name__ == '__main__':
    run('compare')
