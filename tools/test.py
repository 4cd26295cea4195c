"""Evaluate a checkpoint: ``mmrank test``."""

from mmrank.apis.cli import run

if __name__ == '__main__':
    run('test')
