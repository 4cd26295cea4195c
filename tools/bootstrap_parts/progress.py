"""Run commands with a line that shows the time and what they are at."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from .checks import SetupError

#: Seconds between two lines where the output is not a terminal.
LINE_EVERY = 15.0
#: Seconds that a command gets to end by itself after an interrupt.
GRACE = 5.0
COUNTER = re.compile(r'^\s*\[(\d+)/(\d+)\]')
NEWS = re.compile(
    r'^\s*(Collecting|Downloading|Building wheel|Installing collected|'
    r'Successfully|Preparing metadata|Uninstalling)'
)


def clock(seconds):
    """Return seconds as ``mm:ss``."""
    return f'{int(seconds) // 60:02d}:{int(seconds) % 60:02d}'


class Task:
    """A command whose output goes to a log and whose last news is kept.

    Args:
        argv: The command.
        log: File to which its output is added.
        env: Variables added to this process's.
        pass_fds: Open files that the command keeps, such as a held lock.
    """

    def __init__(self, argv, log, env=None, pass_fds=()):
        self.argv = [str(part) for part in argv]
        self.log = Path(log)
        self.news = ''
        self.started = time.monotonic()
        # A group of its own, so that an interrupt reaches compilers that
        # pip started and not only pip.
        self.process = subprocess.Popen(
            self.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            start_new_session=True,
            pass_fds=pass_fds,
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        with open(self.log, 'ab') as file:
            title = f'\n$ {" ".join(self.argv)}\n'
            file.write(title.encode())
            for raw in self.process.stdout:
                file.write(raw)
                file.flush()
                line = raw.decode(errors='replace').rstrip()
                counter = COUNTER.match(line)
                if counter:
                    self.news = f'{counter.group(1)}/{counter.group(2)} files'
                elif NEWS.match(line):
                    self.news = line.strip()

    @property
    def elapsed(self):
        """Seconds since the command began."""
        return time.monotonic() - self.started

    def running(self):
        """Return whether the command still runs."""
        return self.process.poll() is None

    def kill(self):
        """End the command and all it started; wait until they are gone."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except (ProcessLookupError, PermissionError):
                break
            # The output ends when the last process that writes to it is
            # gone, which may be later than the command itself.
            self.reader.join(timeout=GRACE)
            if not self.reader.is_alive():
                break
        self.process.wait()

    def tail(self, count=25):
        """Return the last lines of the log."""
        text = self.log.read_text(errors='replace')
        return '\n'.join(text.splitlines()[-count:])


class Display:
    """Numbered steps with elapsed time.

    Args:
        steps: How many there will be.
        stream: Where to write. Defaults to standard output.
    """

    def __init__(self, steps, stream=None):
        self.steps = steps
        self.step = 0
        self.stream = stream or sys.stdout
        self.live = self.stream.isatty()
        self.began = time.monotonic()
        self.last_line = 0.0
        self.title = ''

    def begin(self, title):
        """Begin the next step."""
        self.step += 1
        self.title = title
        self.step_began = time.monotonic()
        self.last_line = self.step_began
        if not self.live:
            self.write(f'{self.prefix()} {title} ...')
        else:
            self.paint(title)

    def done(self, note=''):
        """End the step with a line that stays."""
        spent = clock(time.monotonic() - self.step_began)
        text = f'{self.prefix()} {self.title}: {note or "done"} ({spent})'
        if self.live:
            self.stream.write('\r\x1b[K')
        self.write(text)

    def note(self, text):
        """Write a line between the steps."""
        if self.live:
            self.stream.write('\r\x1b[K')
        self.write(f'        {text}')

    def prefix(self):
        """Return the step's number and the time since the start."""
        total = clock(time.monotonic() - self.began)
        return f'[{self.step}/{self.steps}] {total}'

    def write(self, text):
        """Write one whole line."""
        self.stream.write(text + '\n')
        self.stream.flush()

    def paint(self, text):
        """Replace the live line."""
        try:
            width = os.get_terminal_size(self.stream.fileno()).columns
        except (OSError, ValueError):
            width = 80
        line = f'{self.prefix()} {text}'[: width - 1]
        self.stream.write('\r\x1b[K' + line)
        self.stream.flush()

    def wait(self, task, beside=None, beside_name=''):
        """Wait for a task and show where it is.

        Args:
            task: The task to wait for.
            beside: A second one that runs at the same time, only shown.
            beside_name: What to call it.

        Raises:
            SetupError: The task failed; the end of its log is in the text.
        """
        while task.running():
            text = f'{self.title} {clock(task.elapsed)} {task.news}'
            if beside is not None and beside.running():
                text += (
                    f' | {beside_name} {clock(beside.elapsed)} {beside.news}'
                )
            if self.live:
                self.paint(text)
            elif time.monotonic() - self.last_line >= LINE_EVERY:
                self.last_line = time.monotonic()
                self.write(f'{self.prefix()}   {text}')
            time.sleep(0.2)
        task.reader.join()
        if task.process.returncode != 0:
            if self.live:
                self.stream.write('\r\x1b[K')
            raise SetupError(
                f'{self.title} failed (exit status '
                f'{task.process.returncode}). The end of its log:\n'
                '\n'
                f'{task.tail()}\n'
                f'\n  Whole log: {task.log}\n  Fix what it names (often the '
                'network, a proxy or a full disk) and run again: finished '
                'steps are not repeated.'
            )
