"""Stand-ins for Slurm's ``sbatch``, ``srun`` and ``scontrol`` on this machine."""

import os
import stat
import sys
import textwrap
from pathlib import Path

#: Two nodes of a cluster without GPUs, that are this machine.
SRUN = """
    import os, signal, subprocess, sys

    options, command = {}, sys.argv[1:]
    while command[0].startswith('--'):
        name, _, value = command.pop(0)[2:].partition('=')
        options[name] = value
    if options.pop('gres', 'none') != 'none':
        sys.exit('srun: error: Invalid generic resource (gres) specification')
    number = int(options.pop('ntasks', 0) or os.environ['SLURM_NTASKS'])
    on_node = int(options.pop('ntasks-per-node', 1))
    end_all = options.pop('kill-on-bad-exit') == '1'
    if unknown := options.keys() - {'partition', 'job-name', 'cpus-per-task'}:
        sys.exit(f"srun: unrecognized option '--{min(unknown)}'")

    tasks = {}
    for rank in range(number):
        tasks[rank] = subprocess.Popen(
            command,
            start_new_session=True,
            env=dict(
                os.environ,
                SLURM_JOB_ID='7',
                SLURM_NTASKS=str(number),
                SLURM_PROCID=str(rank),
                SLURM_LOCALID=str(rank % on_node),
                SLURM_NODEID=str(rank // on_node),
                SLURM_NODELIST='node[1-2]',
            ),
        )

    def pass_on(sign, frame=None):
        for task in tasks.values():
            if task.returncode is None:
                os.kill(task.pid, sign)

    signal.signal(signal.SIGTERM, pass_on)
    codes = []
    while len(codes) < number:
        pid, status = os.wait()
        (task,) = (x for x in tasks.values() if x.pid == pid)
        task.returncode = os.waitstatus_to_exitcode(status)
        codes.append(task.returncode)
        if task.returncode and end_all:
            pass_on(signal.SIGKILL)
    sys.exit(max(code if code >= 0 else 128 - code for code in codes))
"""
#: Runs the script at once, and again where it asks for that.
SBATCH = """
    import os, subprocess, sys
    from pathlib import Path

    script, *arguments = sys.argv[1:]
    lines = Path(script).read_text().splitlines()
    options = {x.removeprefix('#SBATCH --') for x in lines if x.startswith('#SBATCH')}
    if not {'requeue', 'open-mode=append', 'signal=TERM@300'} <= options:
        sys.exit(f'sbatch: {options}')
    env = dict(os.environ, SLURM_JOB_ID='7', SLURM_NTASKS='2')
    again = Path(__file__).with_name('requeue')
    while True:
        code = subprocess.run(['bash', script, *arguments], env=env).returncode
        if not again.exists():
            sys.exit(code)
        again.unlink()
        print('queued again', flush=True)
"""
SCONTROL = """
    import sys
    from pathlib import Path

    if sys.argv[1:] == ['requeue', '7']:
        sys.exit(Path(__file__).with_name('requeue').touch())
    if sys.argv[1:] != ['show', 'hostname', 'node[1-2]']:
        sys.exit(f'scontrol: error: {sys.argv[1:]}')
    print('localhost')
    print('elsewhere')
"""


def install(folder: Path) -> str:
    """Write the commands to a folder; give the variable PATH that finds them first."""
    folder.mkdir()
    for name, text in (('sbatch', SBATCH), ('srun', SRUN), ('scontrol', SCONTROL)):
        path = folder / name
        path.write_text(f'#!{sys.executable}\n' + textwrap.dedent(text))
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return os.pathsep.join([str(folder), os.environ['PATH']])
