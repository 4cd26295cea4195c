"""Check data sets of image search: ``mmrank check retrieval``."""

from mmrank.apis.cli import run

if __name__ == '__main__':
    run('check retrieval')
