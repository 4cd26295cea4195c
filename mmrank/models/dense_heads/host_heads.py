"""How mmdet's dense heads differ for a listwise loss, and which it cannot serve."""

from dataclasses import dataclass

from mmrank.errors import UserTypeError

# Heads (and those derived from them) that a listwise loss cannot serve.
REFUSED = {
    'ATSSVLFusionHead': 'it scores words of a caption instead of classes',
    'AutoAssignHead': 'its loss is a likelihood over all boxes of an object, without loss_cls',
    'BaseMaskHead': 'it predicts masks without boxes',
    'CascadeRPNHead': 'each of its stages is a head of its own',
    'CenterNetHead': 'it regresses a heat map and never calls loss_cls',
    'CenterNetUpdateHead': 'it regresses a heat map, whose soft targets name no negatives to rank',
    'CornerHead': 'it regresses heat maps of corners and never calls loss_cls',
    'DDQDETRHead': 'its dense queries train on element-wise losses of their own',
    'EmbeddingRPNHead': 'its proposals are learnt and have no scores',
    'FSAFHead': 'it chooses the level of each object by element-wise losses',
    'FreeAnchorRetinaHead': 'its loss is a likelihood over bags of anchors, without loss_cls',
    'GroundingDINOHead': 'it scores words of a caption instead of classes',
    'MaskFormerHead': 'it has a classification loss for each layer of its decoder',
    'PAAHead': 'it chooses its positives by an element-wise loss',
    'PISARetinaHead': 'it weighs its samples by an element-wise loss',
    'SSDHead': 'it has a softmax with a background, and never calls loss_cls',
    'StageCascadeRPNHead': 'its stages without scores have nothing to rank',
    'YOLACTHead': 'it mines hard negatives by a softmax over the classes',
    'YOLOV3Head': 'it calls loss_cls at the matched anchors alone',
}


@dataclass(frozen=True)
class _HostTraits:
    """How a head differs from one that calls ``loss_cls`` and ``loss_bbox``."""

    probabilities: bool = False  # Its scores are probabilities already
    other_losses: tuple[str, ...] = ()  # Further attributes that hold its classification loss
    boxes: str = 'loss_bbox'  # Attribute of the loss on the boxes it predicts
    box_key: str | None = None  # Name of that loss in its output, None if there is just one
    no_boxes: str | None = None  # Why its boxes cannot be passed to losses, None if they can
    #: Whether it passes the rows of an image together, all levels, to its classification loss;
    #: otherwise the rows of a level, all images.
    by_image: bool = False


TRAITS = {
    'DDODHead': _HostTraits(no_boxes='it assigns boxes and classes to different anchors'),
    'FoveaHead': _HostTraits(no_boxes='its box loss is computed on box codes'),
    'RepPointsHead': _HostTraits(boxes='loss_bbox_refine', box_key='loss_pts_refine'),
    'SABLRetinaHead': _HostTraits(no_boxes='its box losses are computed on buckets'),
    'TOODHead': _HostTraits(probabilities=True, other_losses=('initial_loss_cls',)),
    'YOLOFHead': _HostTraits(no_boxes='an anchor near several objects is regressed to each'),
    'YOLOXHead': _HostTraits(by_image=True),
    'VFNetHead': _HostTraits(boxes='loss_bbox_refine', box_key='loss_bbox_rf'),
}


def traits_of(host: type) -> _HostTraits:
    """Traits of a head or of the nearest listed class it derives from, else the default ones."""
    for base in host.__mro__:
        _refuse_host(host.__name__, base.__name__)
        if base.__name__ in TRAITS:
            return TRAITS[base.__name__]
    if not hasattr(host, 'loss_by_feat'):
        raise UserTypeError(f'ListwiseHead does not support {host.__name__}: no loss_by_feat')
    return _HostTraits()


def refuse_hosts(part: object) -> None:
    """Refuse, in the config of a model, a head that cannot serve its ranking loss."""
    if isinstance(part, dict):
        for key, value in part.items():
            refuse_hosts(value)
            # The loss itself would advise a ListwiseHead, which then refuses the head.
            if key == 'loss_cls' and str((value or {}).get('type')).startswith('mmrank.'):
                name = str(part.get('type')).rpartition('.')[2]
                _refuse_host(name, name)


def _refuse_host(name: str, base: str) -> None:
    if base in REFUSED:
        other = 'DINOHead' if 'DETR' in base or 'DINO' in base else 'ATSSHead'
        what = f'ListwiseHead does not support {name}: {REFUSED[base]}'
        fix = f"type='mmrank.ListwiseHead', head_type='mmdet.{other}', or the own losses of {name}"
        raise UserTypeError(what, fix)


def derives_from(host: type, name: str) -> bool:
    """Whether a head is the named one of mmdet or derives from it."""
    return any(base.__name__ == name for base in host.__mro__)
