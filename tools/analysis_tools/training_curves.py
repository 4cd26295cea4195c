"""Draw curves of trainings: ``mmrank draw training``."""

from mmrank.apis.cli import run

if __name__ == '__main__':
    run('draw training')
