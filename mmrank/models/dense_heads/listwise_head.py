"""Any mmdet dense head on a loss that ranks all levels and images at once."""

import inspect
from functools import cache

import torch
from mmengine.dist import all_reduce, get_world_size
from torch import Tensor

from mmrank.registry import MODELS

from ..losses import RankingLoss
from .level_collector import LevelCollector


class ListwiseMixin:
    """Put before a dense head: one call of the loss per batch.

    The head runs its own ``loss_by_feat`` with a collector in the place of
    ``loss_cls``; the gathered scores then go through the real loss once.
    """

    def __init__(
        self, *args, loss_cls: dict, centre_scores: bool = True, **kwargs
    ) -> None:
        super().__init__(*args, loss_cls=loss_cls, **kwargs)
        self.centre_scores = centre_scores
        self.loss_cls = LevelCollector(self.loss_cls)

    def loss_by_feat(self, *args, **kwargs) -> dict:
        """Losses of the host head, the classification loss listwise."""
        self.loss_cls.open()
        losses = super().loss_by_feat(*args, **kwargs)
        names = [name for name in losses if 'loss' in name and 'cls' in name]
        if len(names) != 1:
            raise RuntimeError(
                f'{type(self).__mro__[2].__name__} reports {len(names)} '
                f'classification losses ({names}); ListwiseHead serves heads '
                'with one'
            )
        losses[names[0]] = self.loss_cls.close()
        return losses

    def get_targets(self, *args, **kwargs):
        """Targets of the host head, the box normaliser that of all ranks.

        ``AnchorHead.loss_by_feat`` divides by the rank's own number of
        positives, so ranks with few boxes would count for more.
        """
        targets = super().get_targets(*args, **kwargs)
        if get_world_size() == 1 or not self._normalises_by_own_rank():
            return targets
        targets = list(targets)
        factor = torch.tensor(float(targets[4]), device=targets[0][0].device)
        all_reduce(factor, op='mean')
        targets[4] = factor.item()
        return tuple(targets)

    def _normalises_by_own_rank(self) -> bool:
        from mmdet.models.dense_heads import AnchorHead

        host = type(self).__mro__[2]
        return getattr(host, 'loss_by_feat', None) is AnchorHead.loss_by_feat

    def predict_by_feat(self, cls_scores: list[Tensor], *args, **kwargs):
        """Predictions, the mean positive score shown as 0.5.

        Subtracting one number from all scores of a class keeps its ranking;
        it makes ``score_thr`` mean the same for every run.
        """
        centre = None
        if self.centre_scores and isinstance(self.loss_cls.loss, RankingLoss):
            centre = self.loss_cls.loss.logit_centre()
        if centre is not None:
            cls_scores = [self._subtract(s, centre) for s in cls_scores]
        return super().predict_by_feat(cls_scores, *args, **kwargs)

    @staticmethod
    def _subtract(scores: Tensor, centre: Tensor) -> Tensor:
        """Subtract from (N, A * C, H, W), the class running fastest."""
        repeats = scores.size(1) // centre.numel()
        return scores - centre.to(scores.dtype).repeat(repeats)[:, None, None]


@cache
def listwise_class(host: type) -> type:
    """The class ``Listwise<host>``; one and the same for every call."""
    return type(
        f'Listwise{host.__name__}',
        (ListwiseMixin, host),
        {'__doc__': f'{host.__name__} on a listwise loss.'},
    )


@MODELS.register_module()
def ListwiseHead(
    head_type: str, *, loss_cls: dict, centre_scores: bool = True, **kwargs
):
    """Build a dense head of mmdet that trains on a listwise loss.

    In a config, keep the stock head and add two lines::

        bbox_head=dict(
            type='mmrank.ListwiseHead',
            head_type='mmdet.ATSSHead',
            loss_cls=dict(_delete_=True, type='mmrank.StableAPLoss'))

    Args:
        head_type: Registered name of the head with its scope, e.g.
            ``mmdet.RetinaHead``, ``mmdet.ATSSHead``, ``mmdet.FCOSHead``,
            ``mmdet.GFLHead``: any head whose ``loss_by_feat`` calls
            ``self.loss_cls`` on (n, C) scores and class indices.
        loss_cls: Config of the loss. ``num_classes``, and ``rho=1`` (the
            detection form of stable AP), are filled in where the loss takes
            them and the config does not say.
        centre_scores: At test time show the mean positive score as 0.5
            instead of wherever training left it. The ranking of a class
            stays.
        **kwargs: Arguments of the head.

    Returns:
        The head, a subclass of ``head_type``.

    Raises:
        KeyError: If ``head_type`` or the loss is not registered.
    """
    host = MODELS.get(head_type)
    if host is None:
        raise KeyError(
            f'head_type={head_type!r} is not registered; write it with its '
            "scope, as in 'mmdet.RetinaHead', and install that package"
        )
    loss_cls = dict(loss_cls)
    loss_type = MODELS.get(loss_cls['type'])
    if loss_type is None:
        raise KeyError(
            f'loss_cls.type={loss_cls["type"]!r} is not registered;'
            " write it with its scope, as in 'mmrank.StableAPLoss'"
        )
    loss_cls.setdefault('use_sigmoid', True)
    accepted = inspect.signature(loss_type).parameters
    if issubclass(loss_type, RankingLoss):
        if 'rho' in accepted:
            loss_cls.setdefault('rho', 1.0)
        if 'num_classes' in accepted and 'num_classes' in kwargs:
            loss_cls.setdefault('num_classes', kwargs['num_classes'])
    return listwise_class(host)(
        loss_cls=loss_cls, centre_scores=centre_scores, **kwargs
    )
