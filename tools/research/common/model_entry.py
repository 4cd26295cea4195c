"""A model of a table or report, as the command line names it."""

from dataclasses import dataclass
from pathlib import Path

from mmrank.errors import UserError


@dataclass(frozen=True)
class Entry:
    """One model, as the command line names it.

    Attributes:
        name: Name in the table.
        path: Config, or what a run of it has left: a file, or a folder.
        checkpoint: Checkpoint of a config; None without one.
    """

    name: str
    path: Path
    checkpoint: Path | None = None

    @property
    def is_config(self) -> bool:
        """Whether the model has to be run."""
        return self.path.suffix == '.py'

    @property
    def file_name(self) -> str:
        """The name, fit to be part of a file name."""
        return safe_name(self.name)


def safe_name(name: str) -> str:
    """Replace what a file name should not hold by ``_``."""
    return ''.join(c if c.isalnum() or c in '.+-' else '_' for c in name)


def split_entry(word: str) -> tuple[str, str, str | None]:
    """Take ``[NAME=]PATH[,CHECKPOINT]`` apart.

    Args:
        word: From the command line.

    Returns:
        The name or ``''``, the path, and the checkpoint or None.
    """
    name, equals, text = word.partition('=')
    # A path may have an equals sign of its own.
    if not equals or Path(word.partition(',')[0]).exists():
        name, text = '', word
    path, comma, checkpoint = text.partition(',')
    return name, path, checkpoint if comma else None


def find_checkpoint(word: str, checkpoint: str | None, otherwise: str = '') -> Path | None:
    """Check that the checkpoint is there.

    Args:
        word: Entry of the model on the command line.
        checkpoint: As :func:`split_entry` returns it.
        otherwise: What else can be done, for the error.

    Returns:
        The file, or None without one.

    Raises:
        UserError: If it does not exist.
    """
    if checkpoint is None:
        return None
    if not Path(checkpoint).is_file():
        raise UserError(
            f'{word!r}: checkpoint {checkpoint!r} does not exist. Fix: pass '
            f'the .pth file of a training{otherwise}.'
        )
    return Path(checkpoint)
