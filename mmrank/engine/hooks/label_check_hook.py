"""Refuses labels that a one-vs-rest classifier cannot learn from."""

from mmengine.dist import is_main_process
from mmengine.hooks import Hook

from mmrank.datasets.checks.label_check import check_labels
from mmrank.registry import HOOKS


@HOOKS.register_module()
class LabelCheckHook(Hook):
    """Checks the labels of every split once, before it is first used.

    For any data set of mmpretrain's kind, one class or several an item. No image is loaded. See
    :func:`mmrank.datasets.checks.label_check.check_labels`.

    Args:
        need_positives: Whether a class without a positive is an error. It is where the split is
            trained on or measured by average precision.

    Raises:
        UserError: Before training, validation or test.
    """

    def __init__(self, need_positives: bool = True) -> None:
        self.need_positives = need_positives
        self._checked: set[str] = set()

    def _check(self, runner, split: str, loop) -> None:
        # All ranks have the same labels; only the first one reports.
        if split in self._checked or not is_main_process():
            return
        self._checked.add(split)
        check_labels(loop.dataloader.dataset, split, self.need_positives)

    def before_train(self, runner) -> None:
        """Check the training and, if there is one, the validation split."""
        self._check(runner, 'train', runner.train_loop)
        if runner.val_loop is not None:
            self._check(runner, 'val', runner.val_loop)

    def before_val(self, runner) -> None:
        """Check the validation split."""
        self._check(runner, 'val', runner.val_loop)

    def before_test(self, runner) -> None:
        """Check the test split."""
        self._check(runner, 'test', runner.test_loop)
