"""Names that fit into a picture."""


def shorten(name: str, length: int) -> str:
    """Shorten a name in its middle, where names of a series rarely differ.

    Args:
        name: Any text.
        length: Characters at most, at least 3.

    Returns:
        The name, or its beginning and end with an ellipsis between them.
    """
    if len(name) <= length:
        return name
    end = (length - 1) // 2
    return f'{name[: length - 1 - end]}…{name[-end:]}'
