"""Gradient caching, switched on by the optimiser's wrapper."""

from collections.abc import Iterator
from contextlib import contextmanager

from mmengine.optim import AmpOptimWrapper, OptimWrapper
from torch import nn

from mmrank.losses.inputs import one_of
from mmrank.models.grad_cache import embedding_in_chunks
from mmrank.registry import OPTIM_WRAPPERS


class _GradCache:
    def __init__(self, *args, chunk: int, batch_norm: str = 'refuse', **kwargs) -> None:
        super().__init__(*args, **kwargs)
        if not (type(chunk) is int and chunk >= 1):
            raise ValueError(f'chunk must be an int >= 1, got {chunk!r}')
        one_of('batch_norm', batch_norm, ('refuse', 'chunk'))
        self.chunk, self.batch_norm = chunk, batch_norm

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        """The host's context, within which the model embeds in chunks.

        Args:
            model: The training model, also in DistributedDataParallel.

        Raises:
            UserError: If the model cannot embed in chunks.
        """
        with super().optim_context(model), embedding_in_chunks(model, self.chunk, self.batch_norm):
            yield


@OPTIM_WRAPPERS.register_module()
class GradCacheOptimWrapper(_GradCache, OptimWrapper):
    """Big batches in the memory of small ones, for losses of embeddings.

    The images, or texts, of a batch go through the encoder in chunks; the
    loss sees the embeddings of all, once, so its state is updated once; then each chunk goes
    through the encoder again for its gradient. Value and gradient are those of the whole batch;
    memory for activations is that of
    a chunk, and a step takes up to a third longer. See
    :func:`mmrank.functional.grad_cache`, also for dropout, which repeats itself in the second pass.
    Source: Gao et al., 2021.

    Batch norm in training mode normalises by a chunk, so the result is not that of the whole batch:
    it is refused, unless ``batch_norm='chunk'``.

    With DistributedDataParallel a process has chunks of its own batch, and sends its gradients once
    a step. With ``accumulative_counts`` each batch
    is a batch of its own for the loss, as without chunks. A batch that is not larger than a chunk
    costs nothing.

    Args:
        chunk: Rows that an encoder embeds at a time: images, texts, or in self-supervised learning
            views.
        batch_norm: ``refuse`` or ``chunk``: statistics of each chunk; the running ones take in each
            chunk once.
        *args: Of mmengine's ``OptimWrapper``.
        **kwargs: Of it, such as ``optimizer``, ``clip_grad`` and ``accumulative_counts``.

    Raises:
        ValueError: On a parameter out of range.

    Example:
        >>> optim_wrapper = dict(
        ...     type='mmrank.GradCacheOptimWrapper', chunk=64,
        ...     optimizer=dict(type='SGD', lr=0.1))
    """


@OPTIM_WRAPPERS.register_module()
class GradCacheAmpOptimWrapper(_GradCache, AmpOptimWrapper):
    """:class:`GradCacheOptimWrapper` in mixed precision.

    Both passes of a chunk run under the same autocast; the loss is scaled once, before its backward
    pass, as in mmengine's ``AmpOptimWrapper``.
    Sums of gradients over chunks are rounded as those of autocast over
    layers are: in the dtype of the products.

    Args:
        chunk: See :class:`GradCacheOptimWrapper`.
        batch_norm: See there.
        *args: Of mmengine's ``AmpOptimWrapper``.
        **kwargs: Of it, such as ``loss_scale`` and ``dtype``.

    Raises:
        ValueError: On a parameter out of range.
        AssertionError: By mmengine, without a GPU.
    """
