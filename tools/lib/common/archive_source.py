"""The archives that the data set converters read."""

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from lib.common.archive import ArchiveLimits, extract_archive
from mmrank.errors import UserError
from mmrank.files import temporary_folder


def add_archive_options(parser: argparse.ArgumentParser) -> None:
    """Add the limits of an archive to a command line."""
    group = parser.add_argument_group(
        'limits of an archive', 'raise them only for an archive that you trust'
    )
    default = ArchiveLimits()
    for name, kind, value, text in (
        ('gigabytes', float, default.max_bytes / 1e9, 'of all files, unpacked'),
        ('members', int, default.max_members, 'files and folders'),
        ('ratio', float, default.max_ratio, 'size of the files over that of the archive'),
    ):
        shown = '%(default)g' if kind is float else '%(default)s'
        group.add_argument(
            f'--max-{name}', type=kind, default=value, help=f'{text} (default: {shown})'
        )


def archive_limits(args: argparse.Namespace) -> ArchiveLimits:
    """Return the limits that a command line sets."""
    for name in ('max_gigabytes', 'max_members', 'max_ratio'):
        value = getattr(args, name)
        if not value > 0:
            option = '--' + name.replace('_', '-')
            raise UserError(
                f'{option} must be above 0, got {value:g}. Fix: leave it out for the default'
            )
    return ArchiveLimits(
        max_bytes=round(min(args.max_gigabytes, 1e9) * 1e9),
        max_members=args.max_members,
        max_ratio=args.max_ratio,
    )


@contextmanager
def unpacked(
    source: str | os.PathLike,
    beside: str | os.PathLike,
    args: argparse.Namespace,
    select: Callable[[str], bool] | None = None,
) -> Iterator[Path]:
    """Give the folder of a source; an archive is unpacked beside the result, and removed after."""
    if os.path.isdir(source):
        yield Path(source)
        return
    if not os.path.exists(source):
        raise UserError(
            f'{source} does not exist. Fix: pass a folder or a zip file; '
            f'relative paths start at the working directory {Path.cwd()}'
        )
    columns = (TextColumn('Unpacking'), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    limits = archive_limits(args)
    with temporary_folder(beside) as temp:
        folder = temp / 'archive'
        with Progress(*columns, transient=True) as bar:
            task = bar.add_task('')
            extract_archive(
                source,
                folder,
                select=select,
                limits=limits,
                progress=lambda done, total: bar.update(task, completed=done, total=total),
            )
        try:
            yield folder
        except UserError as error:
            text = str(error).replace(f'{folder}{os.sep}', '')
            text = text.replace(str(folder), str(source))
            if str(source) not in text:
                text = f'{source}: {text}'
            raise UserError(text) from error
