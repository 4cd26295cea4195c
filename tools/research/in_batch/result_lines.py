"""Finished results, one JSON object a line, kept as they come."""

import json
import os
from pathlib import Path


class ResultLines:
    """A file to which each result is added when it is there.

    A line that was torn by a crash is passed over, so at most the last
    result is lost.

    Args:
        path: The file; its folder is made if needed.

    Attributes:
        results: Results by their ``key``.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self._path = Path(path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self.results: dict[str, dict] = {}
        self._torn = False
        if not self._path.exists():
            return
        text = self._path.read_text(encoding='utf-8')
        self._torn = bool(text) and not text.endswith('\n')
        for line in text.splitlines():
            try:
                result = json.loads(line)
            except json.JSONDecodeError:
                continue
            self.results[result['key']] = result

    def find(self, key: str, settings: dict) -> dict | None:
        """The result of a key, or None."""
        result = self.results.get(key)
        if result is None:
            return None
        if result['settings'] != json.loads(json.dumps(settings)):
            raise ValueError(
                f'{self._path}: {key} was made with the settings {result["settings"]}, now they '
                f'are {settings}. Fix: use another file, or the settings of before'
            )
        return result

    def add(self, result: dict) -> None:
        """Keep a result."""
        line = json.dumps(result) + '\n'
        with self._path.open('a', encoding='utf-8') as file:
            file.write('\n' + line if self._torn else line)
            file.flush()
            os.fsync(file.fileno())
        self._torn = False
        self.results[result['key']] = json.loads(line)
