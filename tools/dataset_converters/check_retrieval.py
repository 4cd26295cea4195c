"""Check data sets of image search: ``mmrank check retrieval``."""

from mmrank.cli.main import run

if __name__ == '__main__':
    run('check retrieval')
