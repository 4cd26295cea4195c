"""Draw embeddings on a plane: ``mmrank draw embeddings``."""

from mmrank.cli.main import run

if __name__ == '__main__':
    run('draw embeddings')
