"""The garbage collector, kept from walking through what is no garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the garbage collector still while much is made: it walks through all of it again and again, for nothing.

    What was made counts as old afterwards, so that it is not walked through as new either.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # Where somebody froze objects to keep them from the collector, they stay frozen.
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if running:
            gc.enable()


@contextmanager
def out_of_reach() -> Iterator[None]:
    """Keep what is there at the beginning from the garbage collector until the end; what comes meanwhile is collected."""
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
