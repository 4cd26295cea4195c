"""What mmdet's heads ask of a loss and pass to it, and which heads cannot hold one."""

import warnings

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from mmrank.autograd import can_sync, is_compiling
from mmrank.errors import UserError
from mmrank.state import MeanPositiveScore
from mmrank.tensors import at_least_float32, require_numbers
from mmrank.training_set import TrainingSet

#: score_thr of mmdet's detectors.
_USUAL_THRESHOLD = 0.05


class BoxHeadHooks(nn.Module):
    """What mmdet's ``BBoxHead`` asks of a loss, which then gets C and not C + 1 scores of a box.

    A stock head skips the loss on a rank without a single proposal, for which the others would
    wait; :func:`mmrank.models.ListwiseBBoxHead` calls it.
    """

    num_columns: int | None
    activation: str
    training_set: TrainingSet  # that a box head has to have the classes of
    mean_positive: MeanPositiveScore  # of a loss that tracks it

    #: mmdet's heads read it from the config: one output channel per class and sigmoid at test time,
    #: which keeps the ranking. ``help()`` does not show it, as only True is supported.
    hidden_settings = ('use_sigmoid',)
    #: Make mmdet's heads call :meth:`get_cls_channels`, :meth:`get_activation` and
    #: :meth:`get_accuracy`.
    custom_cls_channels = custom_activation = custom_accuracy = True
    roi_classes: int | None = None  # of the box head that the loss was built into
    holder: str | None = None  # class of the head that gathers all scores before it calls the loss
    use_sigmoid = True
    _warned_of_low_scores = False

    def held_by(self, head: nn.Module) -> None:
        """Note that ``head`` calls the loss once for all scores of a batch.

        A stock dense head of mmdet calls it once for each level, and is refused.
        """
        for module in self.modules():
            if isinstance(module, BoxHeadHooks):
                module.holder = type(head).__name__

    def check_head_call(
        self, rows: int, avg_factor: float | None, reduction_override: str | None
    ) -> None:
        """Raise ValueError for what no ranking loss does, UserError in a stock dense head.

        Heads of classifiers pass the number of rows as ``avg_factor``, dense heads another one.
        """
        if reduction_override is not None:
            raise ValueError(f'there is no reduction to override, got {reduction_override!r}')
        is_held = self.holder is not None or self.roi_classes is not None
        if not is_held and not (isinstance(avg_factor, int) and avg_factor == rows):
            raise UserError(
                f'loss_cls.type={type(self).__name__!r} ranks all scores of a batch together, but '
                'its head calls it for each level or decoder layer, and shows scores that no one '
                "centres. Fix: type='mmrank.ListwiseHead' in the config of that head, its own type "
                "as head_type, such as head_type='mmdet.RetinaHead'; a head of your own calls "
                'loss_cls.held_by(self) in its constructor; without a head avg_factor=len(scores)'
            )

    def get_cls_channels(self, num_classes: int) -> int:
        """Number of score channels of a box head with C classes: C, else ValueError.

        There is no background channel, a box without an object is one that no class ranks high. A
        training set with other classes is refused in the first iteration.
        """
        if self.num_columns not in (None, num_classes):
            raise ValueError(
                f'num_classes={self.num_columns} of the loss, but the box '
                f'head has num_classes={num_classes}; set both to the number '
                'of classes of the data set, or remove it from the loss'
            )
        self.roi_classes = num_classes
        self.training_set = TrainingSet()
        return num_classes

    def get_activation(self, cls_score: Tensor) -> Tensor:
        """(n, C) raw scores as scores in [0, 1] at test time, the mean positive score as 0.5.

        At least float32. A box head gets (n, C + 1): the last column is the background's, 1 -
        the highest of the others, which NMS drops.
        """
        if self.roi_classes is not None and self.roi_classes != cls_score.size(1):
            raise ValueError(
                f'cls_score has {cls_score.size(1)} columns but the box head was built with '
                f'num_classes={self.roi_classes}; a ranking loss takes no background column'
            )
        scores = self._centred(cls_score).sigmoid()
        is_news = scores.numel() and not self._warned_of_low_scores
        if is_news and self.logit_centre() is None and scores.max() < _USUAL_THRESHOLD:
            self._warned_of_low_scores = True
            name = type(self).__name__
            warnings.warn(
                f'the highest score of a batch is {float(scores.max()):.2g}: {name} has no '
                'logit_centre(), so the scores are wherever training left them, and a usual '
                f'score_thr={_USUAL_THRESHOLD} drops every box. Fix: let {name}.logit_centre() '
                'return the mean raw score of the positives, or set test_cfg.rcnn.score_thr=0',
                stacklevel=2,
            )
        if self.roi_classes is None:
            return scores
        return torch.cat([scores, 1 - scores.amax(dim=1, keepdim=True)], dim=1)

    @torch.no_grad()
    def get_accuracy(self, cls_score: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """How often the highest of (n, C) scores of a box with an object is right.

        ``acc_classes`` in [0, 100] is logged, but no loss; 0 when no box has an object.
        """
        labels = labels.long()
        has_class = (labels >= 0) & (labels < cls_score.size(1))
        right = (self._centred(cls_score).argmax(dim=1) == labels) & has_class
        return dict(acc_classes=100 * (right.sum() / has_class.sum().clamp(min=1)))

    def logit_centre(self) -> Tensor | None:
        """(1,) or (C,) raw score that heads show as 0.5 at test time; None leaves them as they are.

        The offset of the scores does not change a ranking loss, so a fixed score threshold requires
        the place of the positives. It is the ``mean_positive`` of a loss that tracks it.
        """
        if not hasattr(self, 'mean_positive'):
            return None
        mean = self.mean_positive.mean
        return mean.logit(1e-6) if self.activation == 'sigmoid' else mean

    def _centred(self, cls_score: Tensor) -> Tensor:
        """Raw scores, the mean positive score at 0, at least float32."""
        scores = at_least_float32(cls_score)
        centre = self.logit_centre()
        return scores if centre is None else scores - centre.to(scores.dtype)


def _are_equal(size: int, other: int) -> bool:
    """Whether two sizes agree; False where a compiler cannot know one."""
    if is_compiling():
        # Its import takes long.
        from torch.fx.experimental.symbolic_shapes import statically_known_true

        return statically_known_true(size == other)
    return size == other


def _values_of_rows(values: Tensor, target: Tensor, num_classes: int) -> Tensor:
    """(n,) values of the rows, from the (n,) of all or (n_pos,) with a class; 0 for the others.

    Differentiable. On a GPU the number of values is not compared with the number of rows, which
    would make the host wait.
    """
    if target.dim() == 2 and num_classes == 1:
        has_class = target[:, 0] > 0  # 0 and 1 of one list
    elif target.dim() == 1:
        target = target if target.is_floating_point() else target.long()
        has_class = (target >= 0) & (target < num_classes)
    else:
        what = 'values of boxes need (n,) class indices, one box a row'
        raise ValueError(f'{what}, got a target of shape {tuple(target.shape)}')
    if _are_equal(values.numel(), len(target)) and values.dim() == 1:
        return torch.where(has_class, values, 0)
    rows = torch.from_numpy(np.flatnonzero(has_class.numpy())) if can_sync(target) else None
    if values.dim() != 1 or (rows is not None and len(values) != len(rows)):
        raise ValueError(
            f'quality or box_loss must be ({len(target)},), one for each row, or '
            f'({int(has_class.sum())},), one for each row with a class, got shape '
            f'{tuple(values.shape)}'
        )
    if rows is not None:
        return values.new_zeros(len(target)).index_copy(0, rows, values)
    # Not by masked_scatter, whose backward waits for the device, nor by cat, which bfloat16
    # autocast refuses for float16.
    slot = has_class.cumsum(0)
    return torch.where(has_class, pad(values, (1, 0))[slot], 0)


def box_values(
    loss, cls_score: Tensor, target: Tensor, quality: Tensor | None, box_loss: Tensor | None
) -> Tensor:
    """(L, n) values of the rows of each list, from the (n_pos,) values that a head passed.

    ValueError if they are not what ``box_input`` of the loss asks for.
    """
    values = None
    for box_input, name, given in (('quality', 'quality', quality), ('loss', 'box_loss', box_loss)):
        if loss.box_input == box_input:
            values = given
        elif given is not None:
            raise ValueError(
                f'{type(loss).__name__} does not take {name}, got shape {tuple(given.shape)}'
            )
    if values is None:
        name = 'quality' if loss.box_input == 'quality' else 'box_loss'
        raise UserError(
            f'{type(loss).__name__} requires the boxes of the positives ({name!r}). Fix: '
            f'loss(cls_score, target, {name}=...), (n,) numbers of the rows or (n_pos,) of the '
            "rows with a class, such as their IoU; in mmdet type='mmrank.ListwiseHead' or "
            "'mmrank.ListwiseBBoxHead' passes them; without boxes mmrank.StableAPLoss()"
        )
    if loss.box_input == 'quality':
        # Rounding may exceed 1 a little; NaN, of a broken step, shows in the loss.
        outside = (values < -1e-3) | (values > 1.001)
        fix = "the IoU of each positive's box"
        require_numbers('quality', values, ~outside, 'in [0, 1]', fix)
    # One dtype on all ranks: one without boxes has its own zeros.
    values = values.to(torch.promote_types(cls_score.dtype, torch.float32))
    values = _values_of_rows(values, target, cls_score.size(1))
    return values.expand(1 if loss.mode == 'flatten' else cls_score.size(1), -1)
