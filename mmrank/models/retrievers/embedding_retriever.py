"""Registry entry of the retriever that imports mmpretrain on first use."""

from mmrank.registry import MODELS


@MODELS.register_module()
def EmbeddingRetriever(*args, **kwargs):
    """Build an ``EmbeddingImageRetriever``.

    A builder stands in the registry, not the class: the class derives from
    mmpretrain's, and importing mmpretrain here would break users without it.

    Args:
        *args: As for the class.
        **kwargs: As for the class.

    Returns:
        A :class:`mmrank.models.retrievers.embedding_image_retriever.\
EmbeddingImageRetriever`.

    Raises:
        ImportError: If mmpretrain is not installed.
    """
    try:
        from .embedding_image_retriever import EmbeddingImageRetriever
    except ModuleNotFoundError as error:
        if (error.name or '').partition('.')[0] != 'mmpretrain':
            raise
        raise ImportError(
            "type='mmrank.EmbeddingRetriever' needs mmpretrain, which is not "
            'installed. Fix: `mim install mmpretrain`, or see the README for '
            'the reference stack.'
        ) from error
    return EmbeddingImageRetriever(*args, **kwargs)
