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
    '.inputs': 'EmbeddingBatch',
    '.long_tail.base': 'ClassCountLoss',
    '.long_tail.class_balanced_ce': 'ClassBalancedCELoss',
    '.long_tail.ldam': 'LDAMLoss',
    '.metric_learning.pml': 'PMLLoss',
    '.protocols': (
        'HasDiagnostics HasLogitCentre KeepsSampleState Prefetches Reweights ShiftsLogits '
        'TakesBoxValues TakesClassCounts TakesClassLabels TakesPairCounts TakesPairLabels '
        'TrainsEmbeddings'
    ),
    '.ranking.auc_loss': 'AUCLoss MAUCLoss',
    '.ranking.blackbox_ap_loss': 'BlackBoxAPLoss',
    '.ranking.dr_loss': 'DRLoss',
    '.ranking.error_driven.alrp_loss': 'ALRPLoss',
    '.ranking.error_driven.ap_loss': 'APLoss',
    '.ranking.error_driven.error_driven_loss': 'ErrorDrivenLoss',
    '.ranking.error_driven.rank_sort_loss': 'RankSortLoss',
    '.ranking.listwise_ap_loss': 'ListwiseAPLoss',
    '.ranking.ranking_loss': 'PaddedLoss RankedLists RankingLoss',
    '.ranking.smooth_ap_loss': 'SmoothAPLoss',
    '.ranking.soap_loss': 'SOAPLoss',
    '.ranking.sodeep_loss': 'RankSorter SoDeepLoss',
    '.ranking.soprc_loss': 'SOPRCLoss',
    '.ranking.stable_ap_loss': 'StableAPLoss',
    '.ranking.sum_loss': 'SumLoss',
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
