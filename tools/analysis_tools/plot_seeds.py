"""Draw a comparison over seeds: ``mmrank draw seeds``."""

from mmrank.cli.main import run

if __name__ == '__main__':
    run('draw seeds')
