"""Run commands under a line that shows the time and what they are at."""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

from .checks import SetupError


def clock(seconds):
    """Return seconds as ``mm:ss``."""
    return f'{int(seconds) // 60:02d}:{int(seconds) % 60:02d}'


def end(process, grace=5.0):
    """End a command and all that it started."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)


class Display:
    """Numbered steps with the elapsed time.

    Args:
        steps: How many there will be.
        log: File that takes the output of the commands.
        keep: File descriptors that the commands inherit, such as a lock.
    """

    def __init__(self, steps, log, keep=()):
        self.steps, self.log, self.keep = steps, log, keep
        self.step = 0
        self.live = sys.stdout.isatty()
        self.began = time.monotonic()

    def begin(self, title):
        """Begin the next step."""
        self.step += 1
        self.title = title
        self.write('...', stays=False)

    def write(self, news, stays=True):
        """Write the step, its time and its news; on a terminal in place."""
        spent = clock(time.monotonic() - self.began)
        text = f'[{self.step}/{self.steps}] {spent} {self.title}: {news}'
        if self.live and not stays:
            text = text[: shutil.get_terminal_size().columns - 1]
        last = '' if self.live and not stays else '\n'
        sys.stdout.write(('\r\x1b[K' if self.live else '') + text + last)
        sys.stdout.flush()
        self.written = time.monotonic()

    def tail(self, start, count):
        """Return the last lines of the log after a position."""
        with open(self.log, 'rb') as log:
            log.seek(max(start, os.path.getsize(self.log) - 20000))
            text = log.read().decode(errors='replace')
        return [line for line in text.splitlines() if line.strip()][-count:]

    def run(self, argv, **env):
        """Run a command with added variables; an interrupt ends it all."""
        argv = [str(part) for part in argv]
        with open(self.log, 'ab') as log:
            log.write(f'\n$ {shlex.join(argv)}\n'.encode())
            log.flush()
            start = log.tell()
            # A session of its own: an interrupt must reach the compilers.
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **env},
                start_new_session=True,
                pass_fds=self.keep,
            )
        try:
            while process.poll() is None:
                time.sleep(0.1)
                if time.monotonic() - self.written > (1 if self.live else 15):
                    lines = self.tail(start, 500)
                    counts = [re.match(r'\s*\[(\d+/\d+)\]', x) for x in lines]
                    built = [f'{count[1]} files' for count in counts if count]
                    news = (built or lines or [''])[-1].strip()[:70]
                    self.write(news, stays=False)
        except BaseException:
            end(process)
            raise
        if process.returncode != 0:
            raise SetupError(
                f'{self.title}: failed with exit status {process.returncode}. '
                'The end of its log:\n\n'
                + '\n'.join(self.tail(start, 25))
                + f'\n\n  Whole log: {self.log}\n  Fix: what the log names '
                '(often the network, a proxy or a full disk), and run again.'
            )
