#!/usr/bin/env bash
# Test under slurm.
#   tools/slurm_test.sh PARTITION JOB_NAME CONFIG CHECKPOINT [options of test.py]
# From the environment: GPUS (8 in all), GPUS_PER_NODE (8), CPUS_PER_TASK (5),
# SRUN_ARGS (more options of srun). Without GPUs GPUS is the number of
# processes, which talk over gloo: SRUN_ARGS=--gres=none.
set -euo pipefail

if [ $# -lt 4 ]; then
    sed -n '2,7s/^# \{0,1\}//p' "$0"
    exit 2
fi
TOOLS=$(cd "$(dirname "$0")" && pwd)

# SRUN_ARGS holds several options: left unquoted on purpose.
# shellcheck disable=SC2086
exec env PYTHONPATH="$TOOLS/..:${PYTHONPATH:-}" \
    srun --partition="$1" \
    --job-name="$2" \
    --gres="gpu:${GPUS_PER_NODE:-8}" \
    --ntasks="${GPUS:-8}" \
    --ntasks-per-node="${GPUS_PER_NODE:-8}" \
    --cpus-per-task="${CPUS_PER_TASK:-5}" \
    --kill-on-bad-exit=1 \
    ${SRUN_ARGS:-} \
    "${PYTHON:-python}" -u "$TOOLS/test.py" "$3" "$4" \
    --launcher slurm "${@:5}"
