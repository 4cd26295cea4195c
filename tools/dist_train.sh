#!/usr/bin/env bash
# Train with several processes on one machine (or one of several machines).
#   tools/dist_train.sh CONFIG PROCESSES [options of torchrun and train.py]
# Several machines: start it on each with NNODES, NODE_RANK, MASTER_ADDR and
# PORT set. Without a GPU the processes talk over gloo. torchrun gets
# --max-restarts=N (with --resume) and --rdzv-...=VALUE.
set -euo pipefail

if [ $# -lt 2 ]; then
    sed -n '2,6s/^# \{0,1\}//p' "$0"
    exit 2
fi
CONFIG=$1
LAUNCH=(--nproc_per_node="$2")
TRAIN=(--launcher pytorch)
for word in "${@:3}"; do
    case $word in
        --max-restarts=* | --rdzv-*=*) LAUNCH+=("$word") ;;
        *) TRAIN+=("$word") ;;
    esac
done
TOOLS=$(cd "$(dirname "$0")" && pwd)

# Else gloo of torch 2.12 meets addresses of the first life in most restarts.
exec env PYTHONPATH="$TOOLS/..:${PYTHONPATH:-}" TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 \
    "${PYTHON:-python}" -m torch.distributed.run \
    --nnodes="${NNODES:-1}" \
    --node_rank="${NODE_RANK:-0}" \
    --master_addr="${MASTER_ADDR:-127.0.0.1}" \
    --master_port="${PORT:-29500}" \
    "${LAUNCH[@]}" \
    "$TOOLS/train.py" "$CONFIG" "${TRAIN[@]}"
