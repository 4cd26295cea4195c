"""The functions of mmrank that a call enters."""

import sys
from pathlib import Path

import mmrank

ROOT = Path(mmrank.__file__).parent


def entered(function):
    """(file, name) of each function of mmrank that a call enters, in order."""
    found = []

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == 'call' and path.is_relative_to(ROOT):
            found.append((path.relative_to(ROOT).as_posix(), frame.f_code.co_name))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return found
