"""Check COCO annotation files: ``mmrank check coco``."""

from mmrank.cli.main import run

if __name__ == '__main__':
    run('check coco')
