"""Draw recall by false alarms an image: ``mmrank draw froc``."""

from mmrank.cli.main import run

if __name__ == '__main__':
    run('draw froc')
