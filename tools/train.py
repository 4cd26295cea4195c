"""Train a model: ``mmrank train``."""

from mmrank.apis.cli import run

if __name__ == '__main__':
    run('train')
