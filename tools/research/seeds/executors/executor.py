"""What runs commands, and a command that it has started."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class StartedCommand(Protocol):
    """A command on its way."""

    def poll(self) -> str | None:
        """None until it has ended; then its fault, empty for status 0."""

    def end(self) -> None:
        """End it, and what it started. Does nothing after its end."""


class Executor(Protocol):
    """Runs commands.

    Attributes:
        jobs: Commands at a time; infinity where a scheduler decides.
        poll_seconds: Time between two looks at the started commands.
        file_seconds: How long a file that a command has written may take to
            be seen here: shared file systems keep their listings a while.
    """

    jobs: float
    poll_seconds: float
    file_seconds: float

    def start(self, command: Sequence[str], log: Path, label: str) -> StartedCommand:
        """Start a command.

        Args:
            command: Its words.
            log: File that its output is appended to; its folder is there,
                and belongs to this command.
            label: Name for people.

        Raises:
            OSError: If it cannot be started.
        """

    def close(self) -> None:
        """Give back what the executor itself holds."""


@dataclass(frozen=True)
class NotStarted:
    """A :class:`StartedCommand` that failed to start.

    Args:
        fault: Why.
    """

    fault: str

    def poll(self) -> str:
        """The fault."""
        return self.fault

    def end(self) -> None:
        """Nothing runs."""


def fault_of(status: int) -> str:
    """Fault of a command by its exit status, as of ``subprocess``."""
    if status < 0:
        return f'killed by signal {-status}'
    return f'exit status {status}' if status else ''


def thread_settings(threads: int) -> dict[str, str]:
    """Environment variables of a command.

    What the user has set stays. Results of a sum depend on the number of threads in the last bits,
    so all commands of a plan get the same.

    Args:
        threads: Number of threads of each command.
    """
    own = os.environ.get('OMP_NUM_THREADS', str(threads))
    return {
        'OMP_NUM_THREADS': own,
        'MKL_NUM_THREADS': os.environ.get('MKL_NUM_THREADS', own),
        'PYTHONUNBUFFERED': '1',
    }
