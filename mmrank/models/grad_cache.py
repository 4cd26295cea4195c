"""Models whose encoders can embed a batch in chunks."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from mmrank.errors import UserError
from mmrank.losses.contrastive.grad_cache import grad_cache


class GradCacheMixin:
    """A model, or a part of it, that embeds each row of a batch alone.

    A model of your own takes part in ``mmrank.GradCacheOptimWrapper`` when it derives from this,
    names its encoders, and calls them by :meth:`embed_rows`:

        >>> class Model(GradCacheMixin, nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.encoder = nn.Linear(3, 2)
        ...     def encoders(self):
        ...         return [self.encoder]
        ...     def forward(self, images):
        ...         return self.embed_rows(self.encoder, images)
        >>> Model()(torch.randn(4, 3)).shape
        torch.Size([4, 2])

    Attributes:
        grad_cache_chunk: Rows to embed at a time; None: all.
    """

    grad_cache_chunk: int | None = None

    def encoders(self) -> list[nn.Module]:
        """Modules that :meth:`embed_rows` is called with."""
        raise NotImplementedError

    def embed_rows(self, encode: Callable, rows: Tensor | Sequence) -> Tensor:
        """Embed B rows by :meth:`encoders`, in chunks where gradient caching is on."""
        if self.grad_cache_chunk is None or not torch.is_grad_enabled():
            return encode(rows)
        return grad_cache(encode, rows, self.grad_cache_chunk, self.encoders())

    def check_separable(self, batch_norm: str) -> None:
        """Raise ``UserError`` if a layer of the encoders normalises by the batch."""
        for encoder in self.encoders():
            for name, layer in encoder.named_modules():
                if not _takes_batch_statistics(layer):
                    continue
                where = f'{type(encoder).__name__}.{name}'.rstrip('.')
                if isinstance(layer, nn.SyncBatchNorm):
                    raise UserError(
                        f'{where} is a SyncBatchNorm, which cannot be computed chunk by chunk: '
                        'processes whose batches differ would wait for each other. Fix: freeze it, '
                        "use norm_cfg=dict(type='GN', num_groups=32), or remove "
                        'GradCacheOptimWrapper'
                    )
                if batch_norm == 'refuse':
                    raise UserError(
                        f'{where} is a {type(layer).__name__} in training mode: in chunks it '
                        'normalises by the statistics of a chunk, not of the batch. Fix: freeze it '
                        '(freeze_bn=True of mmrank.EmbeddingRetriever, norm_eval=True of a '
                        "ResNet), use norm_cfg=dict(type='GN', num_groups=32), or accept it: "
                        "optim_wrapper.batch_norm='chunk'"
                    )


def _takes_batch_statistics(layer: nn.Module) -> bool:
    # Not every batch norm derives from torch's. A frozen one has its weight as a buffer, too.
    buffers = layer._buffers
    is_batch_norm = isinstance(layer, _NormBase) or (
        'running_mean' in buffers and 'weight' not in buffers
    )
    # Instance norm shares the base, but looks at one row.
    return (
        is_batch_norm
        and not isinstance(layer, nn.modules.instancenorm._InstanceNorm)
        and (layer.training or not getattr(layer, 'track_running_stats', True))
    )


@contextmanager
def embedding_in_chunks(model: nn.Module, chunk: int, batch_norm: str = 'refuse') -> Iterator[None]:
    """Let the :class:`GradCacheMixin` parts of a model embed ``chunk`` rows at a time."""
    parts = [x for x in model.modules() if isinstance(x, GradCacheMixin)]
    if not parts:
        model = getattr(model, 'module', model)
        raise UserError(
            f'{type(model).__name__} has no encoder that gradient caching could run in chunks. '
            "Fix: remove optim_wrapper.type='mmrank.GradCacheOptimWrapper'; models that have one "
            'are mmrank.EmbeddingRetriever, ImageTextDualEncoder, TwoViewLearner, and TwoTower '
            'with an MLPTower, and your own with mmrank.models.GradCacheMixin'
        )
    for part in parts:
        part.check_separable(batch_norm)
    try:
        for part in parts:
            part.grad_cache_chunk = chunk
        yield
    finally:
        for part in parts:
            part.grad_cache_chunk = None
