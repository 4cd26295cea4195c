"""Draw curves of trainings: ``mmrank draw training``."""

from mmrank.cli.main import run

if __name__ == '__main__':
    run('draw training')
