#!/usr/bin/env bash
# A training that goes on after preemption, a lost node and the time limit. In the checkout:
#   sbatch tools/jobs/slurm_requeue.sh CONFIG WORK_DIR [options of train.py]
# From the environment: CONTAINER, what starts a task, such as
# 'apptainer exec --nv mmrank.sif'.
#SBATCH --job-name=mmrank
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gres=gpu:8
#SBATCH --cpus-per-task=5
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@300
#SBATCH --requeue
#SBATCH --open-mode=append
set -uo pipefail

if [ $# -lt 2 ]; then
    sed -n '2,5s/^# \{0,1\}//p' "$0"
    exit 2
fi

# CONTAINER holds several words: left unquoted on purpose.
# shellcheck disable=SC2086
srun --kill-on-bad-exit=1 ${CONTAINER:-} \
    "${PYTHON:-python}" -u tools/train.py "$1" --work-dir="$2" \
    --launcher slurm --resume --save-on-signal "${@:3}"
status=$?
# The SIGTERM of --signal. Slurm itself requeues after preemption and the loss of a node.
if [ $status -eq 143 ]; then
    exec scontrol requeue "$SLURM_JOB_ID"
fi
exit $status
