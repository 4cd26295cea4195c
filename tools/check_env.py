"""Say what is installed and what works: ``mmrank doctor``."""

from mmrank.cli.main import run

if __name__ == '__main__':
    run('doctor')
