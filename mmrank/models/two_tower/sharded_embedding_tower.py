"""A tower whose table of embeddings is sharded over the processes."""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from mmrank.distributed import is_sharded
from mmrank.registry import MODELS
from mmrank.state.pair_counts import check_entities

from .towers import EmbeddingTower


@MODELS.register_module()
class ShardedEmbeddingTower(EmbeddingTower):
    """``mmrank.EmbeddingTower`` with 1 / W of the rows in each of W processes.

    Weights, gradients and the state of the optimiser are PyTorch's ``DTensor``, sharded by rows
    (``RowwiseParallel``). A process passes the ids of its part of the batch, and gets their
    embeddings: the ids of all are gathered, each process looks up those that it has, and a
    reduce-scatter brings the rows to who asked for them. Values are the whole table's;
    gradients are divided by W, as ``DistributedDataParallel`` divides the gradients of other
    weights, which must leave this table alone: take ``mmrank.ShardedTablesParallel`` as the wrapper
    of the model, and ``mmrank.ShardedTablesHook`` for checkpoints, which hold the whole table.

    In one process it is an ``EmbeddingTower``, with the same keys in a checkpoint. Every process
    has to call it equally often. When it is built, each process holds the whole table for a moment.

    Args:
        num_entities: Number of entities.
        channels: Width D of an embedding.
    """

    def __init__(self, num_entities: int, channels: int) -> None:
        super().__init__(num_entities, channels)
        self.world_size = 1
        if dist.is_available() and dist.is_initialized():
            self.world_size = dist.get_world_size()
        if self.world_size > 1:
            self._shard()

    def _shard(self) -> None:
        # From 2.5 on; import of mmrank.models works with older ones.
        from torch.distributed.tensor import Shard, init_device_mesh
        from torch.distributed.tensor.parallel import RowwiseParallel, parallelize_module

        device = 'cpu' if dist.get_backend() == 'gloo' else 'cuda'
        mesh = init_device_mesh(device, (self.world_size,))
        style = RowwiseParallel(input_layouts=Shard(0), output_layouts=Shard(0))
        parallelize_module(self.table, mesh, style)

    def forward(self, entities: dict[str, Tensor]) -> Tensor:
        """Embeddings as in ``EmbeddingTower``; all processes take part, U may differ."""
        ids = entities['ids']
        check_entities('ids', ids, self.num_entities)
        if self.world_size == 1:
            return self.table(ids)
        # The collectives take as many ids from each process.
        most = torch.tensor(len(ids), device=ids.device)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        padded = ids.new_zeros(int(most))
        padded[: len(ids)] = ids
        found = self.table(padded)[: len(ids)]
        if found.requires_grad:
            found.register_hook(lambda gradient: gradient / self.world_size)
        return found

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *args, **kwargs) -> None:
        """Take the rows of this process from a whole table."""
        key = f'{prefix}table.weight'
        weight = self.table.weight
        whole = state_dict.get(key)
        if whole is not None and is_sharded(weight):
            state_dict[key] = shard_like(whole, weight)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def shard_like(whole: Tensor, sharded: Tensor) -> Tensor:
    """The part of a whole tensor that this process has, a ``DTensor`` placed as ``sharded``.

    Where the shapes differ, ``whole`` stays as it is.
    """
    if is_sharded(whole) or whole.shape != sharded.shape:
        return whole
    from torch.distributed.tensor import DTensor

    size = sharded.device_mesh.size()
    rank = sharded.device_mesh.get_rank()
    parts = whole.to(sharded.device).chunk(size)
    local = parts[rank] if rank < len(parts) else whole[:0]
    return DTensor.from_local(
        local.contiguous(),
        sharded.device_mesh,
        sharded.placements,
        run_check=False,
        shape=sharded.shape,
        stride=sharded.stride(),
    )


def sharded_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters of which this process has a part, by their names."""
    return {name: x for name, x in module.named_parameters() if is_sharded(x)}
