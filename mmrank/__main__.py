"""``python -m mmrank``: the command ``mmrank``."""

from mmrank.cli.main import main

if __name__ == '__main__':
    main()
