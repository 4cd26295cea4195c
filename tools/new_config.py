"""Write a config for boxes of your own: ``mmrank new-config``."""

from mmrank.cli.main import run

if __name__ == '__main__':
    run('new-config')
