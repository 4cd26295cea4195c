"""RoI heads of mmdet on federated annotations, such as LVIS's."""

from mmrank.errors import UserError
from mmrank.made_class import MadeClass, host_class
from mmrank.registry import MODELS

from .listwise_bbox_head import ListwiseBBoxMixin


class FederatedRoIMixin(MadeClass):
    """Mixin for RoI heads: passes the images to its box heads.

    A box head gets proposals without the meta information of their images.
    """

    name_prefix = 'Federated'
    doc_suffix = 'with federated annotations'

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        for head in self._box_heads():
            if not isinstance(head, ListwiseBBoxMixin):
                raise UserError(
                    f'roi_head.bbox_head.type={type(head).__name__!r} cannot ignore classes that '
                    "an image is not annotated for. Fix: bbox_head=dict(type='mmrank."
                    f"ListwiseBBoxHead', head_type='mmdet.{type(head).__name__}', loss_cls=...)"
                )

    def _box_heads(self) -> list:
        heads = self.bbox_head
        # Cascade R-CNN has one for each stage.
        return [heads] if hasattr(heads, 'loss_cls') else list(heads)

    def loss(self, x: tuple, rpn_results_list: list, batch_data_samples: list) -> dict:
        """Losses of the host head, negatives only where an image is annotated exhaustively."""
        metas = [sample.metainfo for sample in batch_data_samples]
        for head in self._box_heads():
            head.image_metas = metas
        losses = super().loss(x, rpn_results_list, batch_data_samples)
        for head in self._box_heads():
            head.image_metas = None
        return losses


@MODELS.register_module()
def FederatedRoIHead(head_type: str | type, **kwargs):
    """Build a RoI head of mmdet for federated annotations.

    For data sets such as LVIS, whose images are annotated for some of the classes only: proposals
    count as negatives of a class where the image is annotated exhaustively for it, see
    :mod:`mmrank.models.federated_annotations`::

        roi_head=dict(
            type='mmrank.FederatedRoIHead',
            head_type='mmdet.StandardRoIHead',
            bbox_head=dict(
                type='mmrank.ListwiseBBoxHead',
                head_type='mmdet.Shared2FCBBoxHead',
                loss_cls=dict(_delete_=True, type='mmrank.GradedAPLoss')))

    The training set is a :class:`mmrank.LVISDataset`, and ``exhaustive_labels`` one of the
    ``meta_keys`` of ``PackDetInputs``. The RPN finds objects of any class and stays as it is.

    Args:
        head_type: The head: its class, or registered name with its scope, e.g.
            ``mmdet.StandardRoIHead`` or ``mmdet.CascadeRoIHead``.
        **kwargs: Arguments of the head; each ``bbox_head`` is a
            :func:`ListwiseBBoxHead`.
    """
    host = host_class('head_type', head_type, 'mmdet.StandardRoIHead')
    return FederatedRoIMixin.class_for(host)(**kwargs)
