"""Check losses of other libraries with mmrank.testing; writes a table and a script a failure.

A library that is not installed is left out::

    python tools/research/field/check_field.py --out field

``losses.csv`` has a row a loss: its version and the number of checks by outcome. ``scripts/`` has
a script for each failed check, which needs the library and torch.
"""

import argparse
import csv
import datetime
import functools
import importlib
import sys
from importlib import metadata
from pathlib import Path

import torch

from mmrank.testing import CALLS, Call, check_loss

#: Libraries: the module of the losses, and the distribution.
LIBRARIES = {
    'torch': ('torch.nn', 'torch'),
    'torchvision': ('torchvision.ops', 'torchvision'),
    'pml': ('pytorch_metric_learning.losses', 'pytorch-metric-learning'),
    'libauc': ('libauc.losses', 'libauc'),
    'lightly': ('lightly.loss', 'lightly'),
    'open_clip': ('open_clip.loss', 'open_clip_torch'),
    'kornia': ('kornia.losses', 'kornia'),
    'imbalanced': ('imbalanced_losses', 'imbalanced-losses'),
    'timm': ('timm.loss', 'timm'),
    'mmdet': ('mmdet.models.losses', 'onedl-mmdetection'),
    'mmpretrain': ('mmpretrain.models.losses', 'onedl-mmpretrain'),
    'smp': ('segmentation_models_pytorch.losses', 'segmentation_models_pytorch'),
    'monai': ('monai.losses', 'monai'),
    'toolbelt': ('pytorch_toolbelt.losses', 'pytorch_toolbelt'),
    'info_nce': ('info_nce', 'info-nce-pytorch'),
    'allrank': ('allrank.models.losses', 'allrank'),
    'pytorchltr': ('pytorchltr.loss', 'pytorchltr'),
    'catalyst': ('catalyst.contrib.losses', 'catalyst'),
}
PML_PROXIES = dict(num_classes=3, embedding_size=8)
MULTI = dict(num_classes=3)
#: Library, names of its losses, their settings and how they are called.
LOSSES = [
    ('torch', 'CrossEntropyLoss MultiMarginLoss', {}, 'scores'),
    ('torch', 'MultiLabelSoftMarginLoss', {}, 'multi_label'),
    ('torchvision', 'sigmoid_focal_loss', dict(reduction='mean'), 'float_labels'),
    (
        'torchvision',
        'generalized_box_iou_loss distance_box_iou_loss complete_box_iou_loss',
        dict(reduction='mean'),
        'boxes',
    ),
    (
        'pml',
        'AngularLoss CircleLoss ContrastiveLoss DynamicSoftMarginLoss FastAPLoss '
        'GeneralizedLiftedStructureLoss IntraPairVarianceLoss LiftedStructureLoss MarginLoss '
        'MultiSimilarityLoss NCALoss NTXentLoss NPairsLoss SignalToNoiseRatioContrastiveLoss '
        'SupConLoss ThresholdConsistentMarginLoss TripletMarginLoss TupletMarginLoss HistogramLoss',
        {},
        'embeddings',
    ),
    (
        'pml',
        'ArcFaceLoss CosFaceLoss LargeMarginSoftmaxLoss NormalizedSoftmaxLoss ProxyAnchorLoss '
        'ProxyNCALoss SoftTripleLoss SphereFaceLoss SubCenterArcFaceLoss',
        PML_PROXIES,
        'embeddings',
    ),
    ('pml', 'RankedListLoss', dict(margin=1.0, Tn=0.0), 'embeddings'),
    ('libauc', 'AUCMLoss PairwiseAUCLoss', {}, 'binary'),
    ('libauc', 'CompositionalAUCLoss CrossEntropyLoss FocalLoss', {}, 'float_binary'),
    ('libauc', 'AveragePrecisionLoss pAUC_DRO_Loss', dict(data_len=40), 'indexed_binary'),
    ('libauc', 'pAUC_CVaR_Loss', dict(data_len=40, pos_len=40), 'indexed_binary'),
    ('libauc', 'tpAUC_KL_Loss', dict(data_len=40), 'indexed_binary'),
    ('libauc', 'GCLoss_v1', dict(N=40), 'indexed_views'),
    ('libauc', 'GCLoss_v2', dict(N=40, tau=0.1), 'indexed_unit_views'),
    (
        'lightly',
        'NTXentLoss DCLLoss DCLWLoss BarlowTwinsLoss VICRegLoss TiCoLoss '
        'NegativeCosineSimilarity MACLLoss DirectCLRLoss',
        {},
        'views',
    ),
    ('open_clip', 'ClipLoss', {}, 'images_texts'),
    ('open_clip', 'SigLipLoss', {}, 'images_texts'),
    ('info_nce', 'InfoNCE', {}, 'views'),
    ('kornia', 'binary_focal_loss_with_logits', dict(reduction='mean'), 'float_labels'),
    ('kornia', 'focal_loss', dict(alpha=0.5, gamma=2.0, reduction='mean'), 'masks'),
    ('kornia', 'dice_loss lovasz_softmax_loss', {}, 'masks'),
    ('kornia', 'tversky_loss', dict(alpha=0.5, beta=0.5), 'masks'),
    ('imbalanced', 'SmoothAPLoss RecallAtQuantileLoss PAUCAtBudgetLoss', MULTI, 'scores'),
    ('imbalanced', 'SigmoidFocalLoss', {}, 'float_labels'),
    ('imbalanced', 'SoftmaxFocalLoss', {}, 'scores'),
    ('timm', 'LabelSmoothingCrossEntropy AsymmetricLossSingleLabel', {}, 'scores'),
    ('timm', 'AsymmetricLossMultiLabel BinaryCrossEntropy', {}, 'float_labels'),
    ('mmdet', 'FocalLoss', {}, 'scores'),
    ('mmdet', 'GIoULoss DIoULoss CIoULoss SmoothL1Loss L1Loss BalancedL1Loss', {}, 'boxes'),
    ('mmdet', 'SeesawLoss', dict(num_classes=3, return_dict=False), 'scores_and_background'),
    ('mmpretrain', 'AsymmetricLoss', dict(use_sigmoid=True), 'float_labels'),
    ('mmpretrain', 'FocalLoss', {}, 'float_labels'),
    ('mmpretrain', 'LabelSmoothLoss', dict(label_smooth_val=0.1, num_classes=3), 'scores'),
    (
        'smp',
        'DiceLoss LovaszLoss JaccardLoss FocalLoss TverskyLoss',
        dict(mode='multiclass'),
        'masks',
    ),
    ('monai', 'DiceLoss', dict(softmax=True, to_onehot_y=True), 'channel_masks'),
    ('monai', 'FocalLoss', dict(to_onehot_y=True), 'channel_masks'),
    ('monai', 'DiceCELoss TverskyLoss', dict(softmax=True, to_onehot_y=True), 'channel_masks'),
    (
        'toolbelt',
        'BinaryFocalLoss BalancedBCEWithLogitsLoss SoftBCEWithLogitsLoss QualityFocalLoss',
        {},
        'float_labels',
    ),
    ('toolbelt', 'CrossEntropyFocalLoss SoftCrossEntropyLoss', {}, 'scores'),
    ('toolbelt', 'BiTemperedLogisticLoss', dict(t1=0.8, t2=1.2), 'one_hot'),
    ('toolbelt', 'DiceLoss JaccardLoss', dict(mode='multiclass'), 'masks'),
    ('toolbelt', 'LogCoshLoss WingLoss', {}, 'numbers'),
    ('allrank', 'approxNDCGLoss lambdaLoss listNet listMLE neuralNDCG rankNet', {}, 'float_lists'),
    (
        'pytorchltr',
        'PairwiseHingeLoss PairwiseDCGHingeLoss PairwiseLogisticLoss LambdaARPLoss1 '
        'LambdaARPLoss2 LambdaNDCGLoss1 LambdaNDCGLoss2',
        {},
        'lists_of_seven',
    ),
    ('catalyst', 'BarlowTwinsLoss', {}, 'views'),
    ('catalyst', 'NTXentLoss', dict(tau=0.5), 'views'),
    ('catalyst', 'SupervisedContrastiveLoss', dict(tau=0.5), 'embeddings'),
]


#: Losses whose state takes float32 alone.
FLOAT32 = ('AveragePrecisionLoss', 'pAUC_DRO_Loss', 'tpAUC_KL_Loss', 'GCLoss_v1', 'GCLoss_v2')
#: Losses whose gradient their paper or their page sets by a rule, with constants in it.
RULES = {'CircleLoss': 'the weights of the pairs are constants'}


def with_float_labels(loss, scores, labels):
    return loss(scores, labels.to(scores))


def with_index(loss, scores, labels, index):
    return loss(scores, labels, index)


def make_indexed_binary(size, seed):
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(size, generator=g, dtype=torch.float64)
    labels = (torch.rand(size, generator=g) < 0.4).long()
    # LibAUC numbers the positives first.
    index = torch.randperm(16, generator=g)[:size]
    return [scores], [labels, torch.where(labels == 1, index, index + 16)]


def labels_zero(x, y):
    return [torch.zeros_like(y[0]), *y[1:]]


def labels_one(x, y):
    return [torch.ones_like(y[0]), *y[1:]]


def with_unit_rows(loss, x, y, index):
    return loss(torch.nn.functional.normalize(x), torch.nn.functional.normalize(y), index)


def with_channel(loss, scores, labels):
    return loss(scores, labels[:, None])


def with_one_hot(loss, scores, labels):
    return loss(scores, torch.nn.functional.one_hot(labels.long(), 3).to(scores))


def with_seven_each(loss, scores, labels):
    return loss(scores, labels, torch.full((len(scores),), 7)).mean()


def with_two_more_scores(loss, scores, labels):
    more = torch.zeros(len(scores), 2, dtype=scores.dtype)
    return loss(torch.cat([scores, more], 1), labels)


def on(name: str, base: str, apply) -> Call:
    """A named call with another way to hand its tensors over."""
    call = CALLS[base]
    return Call(name, call.make, apply, call.no_positives, call.all_positives, call.perfect)


OWN_CALLS = {
    'float_labels': on('float_labels', 'multi_label', with_float_labels),
    'float_binary': on('float_binary', 'binary', with_float_labels),
    'float_lists': on('float_lists', 'lists', with_float_labels),
    'one_hot': on('one_hot', 'scores', with_one_hot),
    'lists_of_seven': on('lists_of_seven', 'lists', with_seven_each),
    'channel_masks': on('channel_masks', 'masks', with_channel),
    'scores_and_background': on('scores_and_background', 'scores', with_two_more_scores),
    'indexed_binary': Call(
        'indexed_binary', make_indexed_binary, with_index, labels_zero, labels_one
    ),
    'indexed_unit_views': on('indexed_unit_views', 'indexed_views', with_unit_rows),
}


def subjects(libraries: list[str]):
    """Losses, their settings and calls, of the libraries that are installed."""
    for library, names, settings, call in LOSSES:
        if libraries and library not in libraries:
            continue
        module, distribution = LIBRARIES[library]
        try:
            found = importlib.import_module(module)
        except Exception as error:  # Some break as they are imported.
            sys.stderr.write(f'{library}: {error!r}\n')
            continue
        for name in names.split():
            if not hasattr(found, name):
                sys.stderr.write(f'{library} has no {name}\n')
                continue
            loss = getattr(found, name)
            loss = functools.partial(loss, **settings)
            yield library, metadata.version(distribution), name, loss, OWN_CALLS.get(call, call)


def main() -> None:
    """Check, and write what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--out', type=Path, default=Path('field'), help='folder to write into')
    parser.add_argument('--libraries', nargs='*', default=[], help=', '.join(LIBRARIES))
    args = parser.parse_args()
    scripts = args.out / 'scripts'
    scripts.mkdir(parents=True, exist_ok=True)
    rows = []
    for library, version, name, loss, call in subjects(args.libraries):
        rule = RULES.get(name, '')
        known = dict(own_gradient=rule, not_promised=dict(second_derivative=rule)) if rule else {}
        if name in FLOAT32:
            known['dtype'] = torch.float32
        report = check_loss(loss, call, name=f'{library}.{name}', **known)
        failed = [x.check for x in report.failures]
        row = dict(library=library, version=version, loss=name, call=report.subject.call.name)
        row |= report.counts() | dict(failures=' '.join(failed))
        rows.append(row | dict(date=str(datetime.date.today())))
        print(f'{library}.{name}: {len(failed)} failed', flush=True)
        for failure in report.failures:
            print(f'    {failure.check}: {failure.message:.150}', flush=True)
            path = scripts / f'{library}_{name}_{failure.check}.py'
            path.write_text(report.script(failure.check), encoding='utf-8')
        # After each loss, so that an interruption costs one.
        with (args.out / 'losses.csv').open('w', newline='') as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator='\n')
            writer.writeheader()
            writer.writerows(rows)


if __name__ == '__main__':
    main()
