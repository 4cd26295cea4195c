"""Draw nearest images and metrics: ``mmrank draw retrieval``."""

from mmrank.cli.main import run

if __name__ == '__main__':
    run('draw retrieval')
