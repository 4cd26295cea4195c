"""Draw nearest images and metrics: ``mmrank draw retrieval``."""

from mmrank.apis.cli import run

if __name__ == '__main__':
    run('draw retrieval')
