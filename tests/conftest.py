"""Settings of all tests."""

import functools
import gc
import importlib.util
import logging
import os
from logging.handlers import BufferingHandler

import pytest
import torch
from hypothesis import settings
from script_fixtures import own_environment, own_loading, run, run_script, trained  # noqa: F401

# A red CI must mean a change for the worse, not a lucky find; new examples are looked for on
# developers' machines.
settings.register_profile('quick', max_examples=50, deadline=None)
settings.register_profile('thorough', max_examples=300, deadline=None)
settings.register_profile('ci', settings.get_profile('quick'), derandomize=True)
settings.load_profile('ci' if os.environ.get('CI') else 'quick')

for device in (torch.cuda, getattr(torch, 'xpu', None), getattr(torch, 'mtia', None)):
    # Seeds would wait for one, each with a stack trace. Early torch has not all of them.
    if device and not device.is_available():
        device.manual_seed_all = lambda seed: None


def pytest_collection_finish():
    """Data sets of mmengine collect garbage when built, a second where much is imported."""
    gc.freeze()
    if not importlib.util.find_spec('mmengine'):
        return
    # Each runner lays out its config three times, and reads what configs a package has.
    from mmengine.config import utils
    from yapf.yapflib import yapf_api

    utils.load = functools.cache(utils.load)
    lay_out, known = yapf_api.FormatCode, {}

    def look_up(text, **style):
        known[text] = known.get(text) or lay_out(text, **style)
        return known[text]

    yapf_api.FormatCode = look_up


@pytest.fixture
def logged():
    """Records that the stand-in of a runner logs; pytest's own log has a price for each test."""
    handler = BufferingHandler(capacity=1000)
    logger = logging.getLogger('mmrank-test')
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield handler.buffer
    logger.removeHandler(handler)


@pytest.fixture
def loads_as_data():
    """Let this process load checkpoints as data only, for one test."""
    with own_loading():
        from mmrank.checkpoint_loading import guard_checkpoints

        guard_checkpoints()
        yield
