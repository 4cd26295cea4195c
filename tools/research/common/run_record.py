"""What a detector's test run measured, kept beside its predictions."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from mmrank.files import write_atomically

RECORD_NAME = 'run.json'
PREDICTIONS_NAME = 'predictions.bbox.json'


@dataclass(frozen=True)
class RunRecord:
    """One test run.

    Attributes:
        digest: Identifies config, overrides, checkpoint and kind of device; see :func:`digest_run`.
        config: Path of the config, as it was given.
        checkpoint: Path of the checkpoint.
        ann_file: Annotation file of the test data.
        image_dir: Folder of its images.
        loss: Classification loss, as the table shows it.
        backbone: Backbone, as the table shows it.
        test_size: Image size in testing, ``'1333 x 800'``.
        device: What it ran on: the GPU's name, or CPU and threads.
        batch_size: Images a batch.
        timed_images: Images that the speeds are means over.
        images_per_second: Model, post-processing included; no data loading.
        images_per_second_with_data: The whole loop with data loading.
        memory_bytes: Peak of the test loop; None where the system does not tell.
        memory_kind: What that peak is of.
        parameters: Numbers in the model.
    """

    digest: str
    config: str
    checkpoint: str
    ann_file: str
    image_dir: str
    loss: str
    backbone: str
    test_size: str
    device: str
    batch_size: int
    timed_images: int
    images_per_second: float
    images_per_second_with_data: float
    memory_bytes: int | None
    memory_kind: str
    parameters: int


def digest_run(config: Mapping, checkpoint: str | os.PathLike | None, device: str) -> str:
    """Digest what a test run's figures depend on.

    Args:
        config: The config, overrides merged.
        checkpoint: File whose content counts; None where the config is
            trained first.
        device: ``'cuda'``, ``'cpu'``, ...: speeds are not those of another.

    Returns:
        Sixteen hexadecimal digits.
    """
    content = hashlib.sha256()
    text = json.dumps([config, device], sort_keys=True, default=str)
    content.update(text.encode())
    if checkpoint is not None:
        with open(checkpoint, 'rb') as file:
            while block := file.read(2**20):
                content.update(block)
    return content.hexdigest()[:16]


def write_record(record: RunRecord, folder: str | os.PathLike) -> Path:
    """Write a record atomically, as the last file of a run.

    Args:
        record: What was measured.
        folder: Folder of the run.

    Returns:
        The file.
    """
    path = Path(folder) / RECORD_NAME
    write_atomically(json.dumps(asdict(record), indent=1).encode(), path)
    return path


def read_record(folder: str | os.PathLike) -> RunRecord | None:
    """Read the record of a folder.

    Args:
        folder: Folder of a run.

    Returns:
        The record; None where the folder has none.

    Raises:
        ValueError: If the file is no record.
    """
    path = Path(folder) / RECORD_NAME
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text('utf-8'))
        known = {field.name for field in fields(RunRecord)}
        return RunRecord(**{k: content[k] for k in content if k in known})
    except (TypeError, ValueError) as error:
        raise ValueError(
            f'{path} is not a record of a test run ({error}). Fix: delete it to run the test again.'
        ) from error
