"""Make a COCO file of other labels: ``mmrank convert``."""

from mmrank.apis.cli import run

if __name__ == '__main__':
    run('convert')
