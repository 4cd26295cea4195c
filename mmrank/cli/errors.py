"""Runs a tool so that what a user can mend is one message, and a signal ends it in order."""

import argparse
import signal
import sys
from collections.abc import Callable

from mmrank import interruption
from mmrank.errors import show_user_errors


def run(main: Callable[[argparse.Namespace], None], args: argparse.Namespace) -> int:
    """Run a tool without a traceback; return its exit status, 2 for the user's errors."""

    def end_in_order(args: argparse.Namespace) -> int:
        interruption.end_on_signals()
        try:
            return main(args) or 0
        except Exception as error:
            # After a signal any error is its consequence: a data loading worker that got it too, a
            # process that is gone.
            number = interruption.received_signal()
            if number is None:
                raise
            sys.stderr.write(f'{type(error).__name__}: {error}\n')
            interruption.leave(number)
        except interruption.Interrupted:
            number = interruption.received_signal() or signal.SIGINT
            # Here, while the traceback still holds the data loader, whose own end waits for its
            # workers for seconds.
            interruption.leave(number)
        finally:
            interruption.defer_signals(False)

    return show_user_errors()(end_in_order)(args)
