"""Compare losses on your data: ``mmrank compare``."""

from mmrank.cli.main import run

if __name__ == '__main__':
    run('compare')
