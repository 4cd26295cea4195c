"""Refuses a ranking loss in a dense head that calls it level by level."""

import sys

from mmrank.errors import UserError

#: Base of mmdet's dense heads, known by its name: losses need torch alone.
_DENSE = 'BaseDenseHead'


def refuse_stock_dense_head(loss: str) -> None:
    """Refuse the dense head that builds a loss, unless it gathers scores.

    No interface tells a loss what holds it, and a stock head does not show
    that it is one until it has called the loss for a single level. So this
    looks at who is building the loss. A head that gathers the scores of all its levels itself says so by a true
    class attribute ``gathers_scores``.

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
            if _DENSE in names and not getattr(head, 'gathers_scores', False):
                raise UserError(
                    f'loss_cls.type={loss!r} ranks all scores of a batch '
                    f'together, but {names[0]} calls its loss once for each '
                    'level, and shows scores that no one centres. Fix: in '
                    f'the config of that head, type={names[0]!r} becomes '
                    "type='mmrank.ListwiseHead', "
                    f"head_type='mmdet.{names[0]}'"
                )
        frame = frame.f_back
