# The public names: what type checkers and editors read, and what is imported when first used.
from .class_part import ClassPart as ClassPart
from .clip_losses import OpenCLIPLoss as OpenCLIPLoss
from .clip_losses import use_contrastive_loss as use_contrastive_loss
from .detection_transformers import load_ranking_state as load_ranking_state
from .detectors import remove_ranking_loss as remove_ranking_loss
from .detectors import show_probabilities as show_probabilities
from .detectors import use_ranking_loss as use_ranking_loss
from .sentence_losses import CrossEncoderRankingLoss as CrossEncoderRankingLoss
from .sentence_losses import SaveLossState as SaveLossState
from .sentence_losses import SentenceContrastLoss as SentenceContrastLoss
from .sentence_losses import SentenceInBatchLoss as SentenceInBatchLoss
from .sentence_losses import SentenceRetrievalLoss as SentenceRetrievalLoss

__all__: list[str]
