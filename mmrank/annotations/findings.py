"""Findings of a data check, and how they are reported. Needs no torch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from reprlib import Repr

#: Findings of a kind that are spelt out.
MAX_EXAMPLES = 5


@dataclass
class Problem:
    """All findings of one kind; ``examples`` are the first few, each with field and value."""

    kind: str
    fix: str
    is_error: bool = True
    count: int = 0
    examples: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """The examples, and how many more there are."""
        more = self.count - len(self.examples)
        return [*self.examples, *([f'... and {more} more'] if more > 0 else [])]

    def __str__(self) -> str:
        lines = [f'{self.kind} ({self.count} found):', *self.lines(), f'Fix: {self.fix}']
        return '\n    '.join(lines)


class Findings:
    """Collects problems by kind and keeps the first examples of each."""

    def __init__(self, fixes: Mapping[str, str]) -> None:
        self.fixes = fixes
        self.by_kind: dict[str, Problem] = {}

    def add(self, kind: str, example: str, is_error: bool = True) -> None:
        """Count one finding; the first of a kind decides whether it is an error."""
        if kind not in self.by_kind:
            self.by_kind[kind] = Problem(kind, self.fixes[kind], is_error)
        problem = self.by_kind[kind]
        problem.count += 1
        if len(problem.examples) < MAX_EXAMPLES:
            problem.examples.append(example)

    def lacks_keys(self, entry: object, where: str, keys: tuple[str, ...]) -> bool:
        """Report the keys that ``entry`` lacks; whether there are any."""
        if not isinstance(entry, dict):
            self.add('malformed value', f'{where} is a {type(entry).__name__}, not an object')
            return True
        absent = [key for key in keys if key not in entry]
        if absent:
            self.add('missing key', f'{where} has no {", ".join(map(repr, absent))}')
        return bool(absent)


@dataclass(kw_only=True)
class DataReport:
    """Problems of one data set; ``heading`` says what was checked."""

    problems: list[Problem] = field(default_factory=list)

    @property
    def errors(self) -> list[Problem]:
        """Problems that must be mended before training."""
        return [x for x in self.problems if x.is_error]

    @property
    def warnings(self) -> list[Problem]:
        """Problems that a training survives, perhaps by dropping data."""
        return [x for x in self.problems if not x.is_error]

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.errors

    def describe(self, problems: list[Problem]) -> str:
        """One text that names what was checked and all ``problems``."""
        return '\n'.join([self.heading, *(f'  {i}. {x}' for i, x in enumerate(problems, 1))])


def is_id(value: object) -> bool:
    """Whether ``value`` can be an id: an integer or a string."""
    return isinstance(value, int | str) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether ``value`` is an integer or a float, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
#: A value as messages show it, however long or deeply nested it is.
shown = _SHORT.repr


def config_datasets(dataset: object, where: str) -> Iterator[tuple[str, Mapping]]:
    """Place and config of a data set, inside of its wrappers first."""
    if not isinstance(dataset, Mapping):
        return
    inner = dataset.get('datasets')
    for index, item in enumerate(inner if isinstance(inner, list | tuple) else ()):
        yield from config_datasets(item, f'{where}.datasets.{index}')
    yield from config_datasets(dataset.get('dataset'), f'{where}.dataset')
    yield where, dataset
