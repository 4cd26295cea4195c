"""Train a model: ``mmrank train``."""

from mmrank.cli.main import run

if __name__ == '__main__':
    run('train')
