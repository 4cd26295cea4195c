"""Embeddings that the first rank has collected, given to all ranks."""

from collections.abc import Callable

import torch
from mmengine.dist import broadcast, broadcast_object_list, is_main_process

from mmrank.evaluation.retrieval_features import RetrievalFeatures


def share_features(make: Callable[[], RetrievalFeatures]) -> RetrievalFeatures:
    """Make features on the first rank and give them to all.

    Image paths and class names stay on the first rank.

    Args:
        make: Called on the first rank only; gives CPU tensors.

    Returns:
        The features; what ``make`` gave on the first rank.

    Raises:
        RuntimeError: On the other ranks, if ``make`` has raised.
    """
    features = None
    if is_main_process():
        try:
            features = make()
        except Exception as error:
            # Without a word the others would wait until the timeout.
            broadcast_object_list([dict(error=repr(error))])
            raise
        message = [
            dict(
                shape=features.features.shape,
                dtype=features.features.dtype,
                has_gallery=features.in_gallery is not None,
                similarity=features.similarity,
            )
        ]
    else:
        message = [None]
    broadcast_object_list(message)
    message = message[0]
    if 'error' in message:
        raise RuntimeError(f'the first rank has failed: {message["error"]}')
    samples = message['shape'][0]
    if features is None:
        features = RetrievalFeatures(
            features=torch.empty(message['shape'], dtype=message['dtype']),
            labels=torch.empty(samples, dtype=torch.int64),
            in_gallery=(
                torch.empty(samples, dtype=torch.bool)
                if message['has_gallery']
                else None
            ),
            similarity=message['similarity'],
        )
    broadcast(features.features)
    broadcast(features.labels)
    if features.in_gallery is not None:
        broadcast(features.in_gallery)
    return features
