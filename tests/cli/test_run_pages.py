"""tools/misc/run_pages.py on a small repository."""

import re
import subprocess
import sys

import pytest
from docs_blocks import ROOT

import run_pages
from documents import documents

TOOL = ROOT / 'tools' / 'misc' / 'run_pages.py'
README = """
```bash
make try
```
`make try` takes 7 CPU seconds. `make demo` takes about six CPU minutes.
"""
MAKEFILE = """env:
	false
try:
	$(PYTHON) tools/bootstrap.py
	$(TRY_VENV)/bin/python -c "[i for i in range(10 ** 5)]"
demo: env
	$(VENV)/bin/python -c "[i for i in range(10 ** 5)]"
"""
PAGE = """
```bash
echo 5 > number.txt
```
```python
# half.py
print(int(open('number.txt').read()) / 2)
```
```{.python .start}
import math
```
```python
import half
assert half and math.isclose(half.__name__ == 'half', 1)
```
```python
model = dict(type='Model', parts=[1, 2])
```
```{.python .needs-no-such-package}
import no_such_package
```
```bash
python -c "[i for i in range(3 * 10 ** 7)]"
sleep 1000 &
```
"""
FAILS = """
```bash
echo before; false; echo after
```
"""


@pytest.fixture
def repository(tmp_path):
    pages = tmp_path / 'docs' / 'pages'
    pages.mkdir(parents=True)
    (tmp_path / 'README.md').write_text(README)
    (tmp_path / 'Makefile').write_text(MAKEFILE)
    (pages / 'runs.md').write_text(PAGE)
    (pages / 'users').mkdir()
    (pages / 'users' / 'fails.md').write_text(FAILS)
    identity = ['-c', 'user.name=x', '-c', 'user.email=x@example.org']
    for command in (['init', '-q'], ['add', '-A'], [*identity, 'commit', '-qm', 'x']):
        subprocess.run(['git', *command], cwd=tmp_path, check=True)
    return tmp_path


def run(repository, *arguments):
    """Exit status and output; in a process of its own, as it waits for all children of it."""
    command = [sys.executable, TOOL, '--root', repository, *arguments]
    done = subprocess.run([str(x) for x in command], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.processes
def test_blocks_run_in_a_clone_one_after_the_other(repository, tmp_path):
    log = tmp_path / 'log.txt'
    status, said = run(repository, '--log', log, 'README', 'runs')
    assert status == 0, said
    assert '6 ok\n2 skipped\n0 FAILED\n' in said
    assert 'skipped: makes an environment, from the network' in said
    assert 'skipped: needs no such package' in said
    assert '2.5' in log.read_text()
    seconds = re.findall(r'([\d.]+) CPU s$', said, re.MULTILINE)
    assert float(seconds[-1]) > 0.2
    # Not in the repository itself.
    assert not (repository / 'number.txt').exists()
    # A block that fails ends with its output.
    status, said = run(repository, 'users/fails')
    assert status == 1
    assert 'docs/pages/users/fails.md:2' in said
    assert 'FAILED  rc 1' in said
    assert 'before' in said
    assert 'after' not in said
    # The times of the first results are written.
    assert run(repository, '--times')[0] == 0
    text = (repository / 'README.md').read_text()
    assert re.search(r'`make try` takes [012] CPU seconds. `make demo` takes [012] CPU s', text)


def test_every_rule_of_what_is_left_out_is_needed():
    """And each Python block that runs can be parsed."""
    needed = set()
    ran = 0
    for page in documents(ROOT):
        for block in run_pages.blocks(page):
            reason = run_pages.reason_to_skip(block, ROOT)
            needed.add(reason)
            if reason is None and 'python' in block.opening:
                run_pages.is_config(block.text)
                ran += 1
    assert {reason for _, reason in run_pages.SKIPPED} <= needed
    assert ran > 40
