"""Make a COCO file of other labels: ``mmrank convert``."""

from mmrank.cli.main import run

if __name__ == '__main__':
    run('convert')
