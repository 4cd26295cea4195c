"""How a training ended and what it measured."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from mmrank.errors import UserError

from .plan import Run


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Args:
        run: The run.
        metrics: What was measured, by key; ``None`` for a failed run.
        seconds: Time it took now; 0 if it was finished before.
        error: Why it failed, with the end of its log.
    """

    run: Run
    metrics: dict[str, float] | None
    seconds: float = 0.0
    error: str = ''


def read_result(run: Run, metrics: Sequence[str] = ()) -> dict | None:
    """Read the metrics of a finished run.

    Args:
        run: The run.
        metrics: Keys that have to be there.

    Returns:
        The metrics, or ``None`` when the run is not finished.

    Raises:
        UserError: When the file lacks a metric; the message lists those
            that it has.
    """
    if not run.result_file.is_file():
        return None
    try:
        found = json.loads(run.result_file.read_text())['metrics']
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise UserError(
            f'{run.result_file} is not a valid result ({error!r}): delete it '
            'to run the training again.'
        ) from error
    missing = [key for key in metrics if key not in found]
    if missing:
        raise UserError(
            f'{run.result_file} has no metric {missing}; it has '
            f'{sorted(found)}. Change `metrics`; nothing is trained again.'
        )
    return {key: float(value) for key, value in found.items() if isinstance(value, (int, float))}
