# The public names: what type checkers and editors read, and what is imported when first used.
from .interactions.interaction_dataset import InteractionDataset as InteractionDataset
from .interactions.interaction_dataset import TopKDataset as TopKDataset
from .interactions.interaction_dataset import pair_collate as pair_collate
from .one_size import IndexedConcatDataset as IndexedConcatDataset
from .one_size import one_size_collate as one_size_collate

__all__: list[str]
