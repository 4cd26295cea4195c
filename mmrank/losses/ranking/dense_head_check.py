"""Refuses a ranking loss in a dense head that calls it level by level."""

import sys

from mmrank.errors import UserError

#: Bases of mmdet's heads, by name since losses need torch alone, and what
#: they call the loss once for.
_BASES = {'BaseDenseHead': 'level', 'DETRHead': 'layer of its decoder'}


def refuse_stock_dense_head(loss: str) -> None:
    """Refuse the dense head that builds a loss, unless it gathers scores.

    No interface tells a loss what holds it, and a stock head does not show that it is one until it
    has called the loss for a single level. So this looks at who is building the loss. A head that
    takes care of that itself says so by a true class attribute ``gathers_scores``.

    Args:
        loss: Name of the class that is being built.

    Raises:
        UserError: If a stock dense head of mmdet builds it.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == '__init__':
            head = frame.f_locals.get('self')
            names = [base.__name__ for base in type(head).__mro__]
            once_for = next((_BASES[x] for x in names if x in _BASES), None)
            if once_for and not getattr(head, 'gathers_scores', False):
                raise UserError(
                    f'loss_cls.type={loss!r} ranks all scores of a batch '
                    f'together, but {names[0]} calls its loss once for each '
                    f'{once_for}, and shows scores that no one centres. Fix: '
                    f'in the config of that head, type={names[0]!r} becomes '
                    "type='mmrank.ListwiseHead', "
                    f"head_type='mmdet.{names[0]}'"
                )
        frame = frame.f_back
