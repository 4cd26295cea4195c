"""Draw boxes of detectors: ``mmrank draw detections``."""

from mmrank.cli.main import run

if __name__ == '__main__':
    run('draw detections')
