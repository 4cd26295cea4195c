"""Evaluate a checkpoint: ``mmrank test``."""

from mmrank.cli.main import run

if __name__ == '__main__':
    run('test')
