"""The archives that the data set converters read."""

import os
import stat
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mmrank.errors import UserError
from mmrank.files import path_fault, temporary_folder

_FIX = 'pass a zip file that is there and whole; if you trust it, unpack it and pass the folder'


@contextmanager
def unpacked(
    source: str | os.PathLike, beside: str | os.PathLike, select: Callable[[str], bool]
) -> Iterator[Path]:
    """Give the folder of a source; a zip file is unpacked beside the result, and removed after."""
    if os.path.isdir(source):
        yield Path(source)
        return
    # Another name than that of the result, which has a temporary folder at the same time.
    with temporary_folder(f'{os.fspath(beside)}.archive') as temp:
        folder = temp / 'archive'
        folder.mkdir()
        try:
            with zipfile.ZipFile(source) as archive:
                for info in archive.infolist():
                    # zipfile cuts a name at a null character.
                    fault = path_fault(info.orig_filename)
                    if stat.S_ISLNK(info.external_attr >> 16):
                        fault = 'is a symbolic link'
                    if fault:
                        raise ValueError(f'member {info.orig_filename!r:.100} {fault}')
                archive.extractall(folder, filter(select, archive.namelist()))
        # Damaged bytes raise ten types of errors.
        except Exception as error:
            raise UserError(f'archive {source} cannot be unpacked: {error}', _FIX) from error
        try:
            yield folder
        except UserError as error:
            raise UserError(str(error).replace(str(folder), str(source))) from error
