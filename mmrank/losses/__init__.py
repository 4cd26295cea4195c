"""Losses, which need torch alone. A module is imported when one of its names is first used."""

from importlib import import_module

#: Public names by the module that defines them.
_MODULES = {
    '.contrastive.base': 'ContrastiveLoss',
    '.contrastive.clip': 'CLIPLoss IndividualCLIPLoss',
    '.contrastive.cyclip': 'CyCLIPLoss',
    '.contrastive.decorrelation': 'BarlowTwinsLoss VICRegLoss',
    '.contrastive.info_nce': 'FlatCLRLoss InfoNCELoss',
    '.contrastive.others': 'SimCoLoss SpectralContrastiveLoss TaUSimCLRLoss',
    '.contrastive.siglip': 'SigLIPLoss',
    '.contrastive.sogclr': 'BimodalISogCLRLoss ISogCLRLoss SogCLRLoss',
    '.embeddings': 'EmbeddingLoss',
    '.inputs': 'EmbeddingBatch',
    '.long_tail.asymmetric': 'AsymmetricLoss',
    '.long_tail.balanced_softmax': 'BalancedSoftmaxLoss',
    '.long_tail.base': 'ClassCountLoss PointwiseLoss',
    '.long_tail.class_balanced_ce': 'ClassBalancedCELoss',
    '.long_tail.ldam': 'LDAMLoss',
    '.long_tail.logit_adjusted_ce': 'LogitAdjustedCELoss',
    '.metric_learning.pml': 'PMLLoss',
    '.protocols': (
        'HasDiagnostics HasLogitCentre KeepsSampleState Prefetches Reweights ShiftsLogits '
        'TakesBoxValues TakesClassCounts TakesClassLabels TakesPairCounts TakesPairLabels '
        'TrainsEmbeddings'
    ),
    '.quality_losses': 'IABCELoss MALLoss QualityFocalLoss VarifocalLoss',
    '.ranking.alrp': 'ALRPLoss',
    '.ranking.ap_loss': 'APLoss ErrorDrivenLoss',
    '.ranking.auc': 'AUCLoss MAUCLoss',
    '.ranking.base': 'RankedLists RankingLoss StatelessRankingLoss',
    '.ranking.blackbox_ap': 'BlackBoxAPLoss',
    '.ranking.dr_loss': 'DRLoss',
    '.ranking.listwise_ap': 'ListwiseAPLoss',
    '.ranking.rank_sort': 'RankSortLoss',
    '.ranking.smooth_ap': 'SmoothAPLoss',
    '.ranking.soap': 'SOAPLoss',
    '.ranking.sodeep': 'RankSorter SoDeepLoss',
    '.ranking.soprc': 'SOPRCLoss',
    '.ranking.stable_ap': 'StableAPLoss',
    '.ranking.sum': 'SumLoss',
    '.two_tower.in_batch': 'InBatchLoss',
    '.two_tower.in_batch_softmax': 'InBatchSoftmaxLoss',
    '.two_tower.labelled_pairs': 'LabelledPairLoss',
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> object:
    """Import the module of a name when it is first asked for."""
    if name not in _PLACES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    value = globals()[name] = getattr(import_module(_PLACES[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return __all__
