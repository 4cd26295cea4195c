"""Draw precision-recall curves: ``mmrank draw pr-curves``."""

from mmrank.cli.main import run

if __name__ == '__main__':
    run('draw pr-curves')
