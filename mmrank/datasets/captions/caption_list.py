"""Images and their captions as a file lists them."""

from typing import NamedTuple

from mmrank.datasets.retrieval.image_lists import BadLine
from mmrank.errors import UserError

_EXAMPLES = 3


class CaptionedImage(NamedTuple):
    """One image and its captions.

    Attributes:
        path: Relative to the folder of the images.
        captions: One or more.
        label: Name of its class; None where there is none.
    """

    path: str
    captions: tuple[str, ...]
    label: str | None = None


class CaptionList(NamedTuple):
    """What a file holds.

    Attributes:
        source: The file.
        entry_format: What an entry should look like, for messages.
        images: In the order of the file, each once.
        bad_entries: Those that could not be read.
    """

    source: str
    entry_format: str
    images: list[CaptionedImage]
    bad_entries: list[BadLine]

    def raise_if_bad(self) -> None:
        """Raise when an entry could not be read or there is no image.

        Raises:
            UserError: Names the first bad entries.
        """
        if self.bad_entries:
            shown = [f'    {x.place}: {x.text}' for x in self.bad_entries]
            more = len(shown) - _EXAMPLES
            shown = shown[:_EXAMPLES]
            if more > 0:
                shown.append(f'    ... and {more} more')
            raise UserError(
                f'{len(self.bad_entries)} entries of {self.source} are not '
                f'of the form {self.entry_format}:\n'
                + '\n'.join(shown)
                + '\n  Fix: correct or remove them, or name the columns that '
                'the file has'
            )
        if not self.images:
            raise UserError(
                f'{self.source} has no image with a caption. Fix: check '
                'ann_file and, where there is one, split'
            )


class CaptionGathering:
    """Collects captions by image, in the order of first mention."""

    def __init__(self) -> None:
        self._images: dict[str, tuple[list[str], str | None]] = {}

    def add(self, path: str, captions: list[str], label: str | None = None) -> None:
        """Add captions to those of an image."""
        known = self._images.setdefault(path, ([], label))
        known[0].extend(captions)

    def images(self) -> list[CaptionedImage]:
        """The images that have a caption."""
        return [
            CaptionedImage(path, tuple(captions), label)
            for path, (captions, label) in self._images.items()
            if captions
        ]


def clean_captions(value) -> list[str] | None:
    """Captions of an entry, without blanks around and line breaks within.

    Args:
        value: A string, or a list of them.

    Returns:
        At least one that is not empty, or None.
    """
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not values:
        return None
    if not all(isinstance(x, str) and x.strip() for x in values):
        return None
    return [' '.join(x.split()) for x in values]
