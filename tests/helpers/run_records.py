"""A record of a detector's test run, with made-up figures."""

from detectors.runs import RunRecord


def run_record(**changes) -> RunRecord:
    """A record, some of its fields changed."""
    values = dict(
        digest='0123456789abcdef',
        config='focal.py',
        checkpoint='focal.pth',
        ann_file='val.json',
        device='CPU, 2 threads',
        batch_size=2,
        timed_images=8,
        images_per_second=2.54,
        images_per_second_with_data=2.25,
        memory_bytes=3 * 2**20,
        memory_kind='CPU, growth + model',
        parameters=1_500_000,
    )
    return RunRecord(**{**values, **changes})
