"""Train a detector on two losses: ``mmrank demo``."""

from mmrank.cli.main import run

if __name__ == '__main__':
    run('demo')
