"""Findings of a data check, and how they are reported."""

from dataclasses import dataclass, field

from mmrank.errors import UserError


@dataclass
class Problem:
    """All findings of one kind.

    Attributes:
        kind: What is wrong, as a noun phrase; also the grouping key.
        fix: What the user should do, one sentence.
        is_error: Whether training must not start; otherwise a warning.
        count: How often it was found.
        examples: The first few findings, each naming field and value.
    """

    kind: str
    fix: str
    is_error: bool = True
    count: int = 0
    examples: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Kind, count, first findings and fix on indented lines."""
        lines = [f'{self.kind} ({self.count} found):']
        lines += [f'    {example}' for example in self.examples]
        if self.count > len(self.examples):
            lines.append(f'    ... and {self.count - len(self.examples)} more')
        lines.append(f'    Fix: {self.fix}')
        return '\n'.join(lines)


@dataclass(kw_only=True)
class DataReport:
    """Problems of one data set; a subclass has its contents, too.

    Attributes:
        problems: Findings grouped by kind, errors and warnings.
    """

    problems: list[Problem] = field(default_factory=list)

    @property
    def heading(self) -> str:
        """What was checked; the first line of :meth:`describe`."""
        raise NotImplementedError

    @property
    def errors(self) -> list[Problem]:
        """Problems that must be mended before training."""
        return [p for p in self.problems if p.is_error]

    @property
    def warnings(self) -> list[Problem]:
        """Problems that a training survives, perhaps by dropping data."""
        return [p for p in self.problems if not p.is_error]

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.errors

    def describe(self, problems: list[Problem]) -> str:
        """One text that names what was checked and all ``problems``."""
        parts = [f'  {i}. {p}' for i, p in enumerate(problems, start=1)]
        return '\n'.join([self.heading, *parts])

    def raise_if_bad(self) -> None:
        """Raise when there is an error.

        Raises:
            UserError: With all errors in one message.
        """
        if not self.ok:
            raise UserError(self.describe(self.errors))
