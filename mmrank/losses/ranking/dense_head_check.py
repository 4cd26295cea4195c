"""Refuses a ranking loss in a dense head that calls it level by level."""

from torch import nn

from mmrank.errors import UserError

#: Bases of mmdet's heads, by name since losses need torch alone, and what they call the loss for.
_BASES = {'BaseDenseHead': 'level', 'DETRHead': 'layer of its decoder'}


def refuse_stock_dense_head(head: nn.Module, name: str, loss: nn.Module | None) -> None:
    """Raise if a stock dense head takes a loss that ranks all scores of a batch.

    A hook of ``torch.nn.modules.module.register_module_module_registration_hook``: torch calls it
    when a module becomes a part of another. A loss is not told which head holds it, and a stock
    head shows what it is only once it has called the loss for a single level. A head that gathers
    the scores itself says so by a true class attribute ``gathers_scores``.

    Args:
        head: The module that takes a part.
        name: Name of the part in it.
        loss: The part; those with a true ``ranks_batches``, themselves or within, are refused.

    Raises:
        UserError: If ``head`` is a stock dense head of mmdet.
    """
    names = [base.__name__ for base in type(head).__mro__]
    once_for = next((_BASES[x] for x in names if x in _BASES), None)
    if once_for is None or loss is None or getattr(head, 'gathers_scores', False):
        return
    for part in loss.modules():
        if getattr(part, 'ranks_batches', False):
            raise UserError(
                f'{name}.type={type(part).__name__!r} ranks all scores of a batch together, but '
                f'{names[0]} calls its loss once for each {once_for}, and shows scores that no one '
                f'centres. Fix: in the config of that head, type={names[0]!r} becomes '
                f"type='mmrank.ListwiseHead', head_type='mmdet.{names[0]}'"
            )
