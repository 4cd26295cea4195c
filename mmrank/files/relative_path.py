"""Paths that a file from elsewhere names, relative to a folder of the user."""

import re

#: Bytes that common file systems allow in one part of a path, and in all.
_PART_BYTES = 255
_PATH_BYTES = 4095
_DRIVE = re.compile('[A-Za-z]:')
_SEPARATOR = re.compile(r'[\\/]')


def path_fault(name: object) -> str | None:
    r"""Say why a name must not be joined with a folder.

    Annotation files and archives come from strangers: ``/etc/passwd`` and ``../../x`` would lead
    out of the folder, and the operating system refuses other names with an error that names neither
    file nor field.

    Args:
        name: The name, as the file has it. ``/`` and ``\`` both separate.

    Returns:
        What is wrong, as the end of a sentence that begins with the name;
        None for a name that stays within the folder.
    """
    if not isinstance(name, str):
        return f'is a {type(name).__name__}, not text'
    # Most names pass here; the rest costs several times as much.
    if (
        0 < len(name) <= _PART_BYTES
        and name.isascii()
        and name.isprintable()
        and name[0] not in '/\\ '
        and '..' not in name
        and ':' not in name
    ):
        return None
    if not name.strip():
        return 'is empty'
    if '\0' in name:
        return 'holds a null character'
    if _SEPARATOR.match(name) or _DRIVE.match(name):
        return 'is absolute'
    parts = _SEPARATOR.split(name)
    if '..' in parts:
        return "leaves its folder by '..'"
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        return 'holds a character that is not valid Unicode'
    if max(sizes) > _PART_BYTES:
        return f'has a part of {max(sizes):,} bytes, more than {_PART_BYTES}'
    if sum(sizes) + len(sizes) > _PATH_BYTES:
        return f'has {sum(sizes):,} bytes, more than {_PATH_BYTES:,}'
    return None
