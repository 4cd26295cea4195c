#!/usr/bin/env bash
# Test with several processes on one machine (or one of several machines).
#   tools/dist_test.sh CONFIG CHECKPOINT PROCESSES [options of test.py]
# Several machines: start it on each with NNODES, NODE_RANK, MASTER_ADDR and
# PORT set. Without a GPU the processes talk over gloo.
set -euo pipefail

if [ $# -lt 3 ]; then
    sed -n '2,5s/^# \{0,1\}//p' "$0"
    exit 2
fi
CONFIG=$1
CHECKPOINT=$2
PROCESSES=$3
TOOLS=$(cd "$(dirname "$0")" && pwd)

exec env PYTHONPATH="$TOOLS/..:${PYTHONPATH:-}" \
    "${PYTHON:-python}" -m torch.distributed.run \
    --nnodes="${NNODES:-1}" \
    --node_rank="${NODE_RANK:-0}" \
    --master_addr="${MASTER_ADDR:-127.0.0.1}" \
    --master_port="${PORT:-29500}" \
    --nproc_per_node="$PROCESSES" \
    "$TOOLS/test.py" "$CONFIG" "$CHECKPOINT" --launcher pytorch "${@:4}"
