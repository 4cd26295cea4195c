"""The way through the wrappers around a model."""

import torch
from mmengine.model import ExponentialMovingAverage
from mmengine.registry import MODEL_WRAPPERS

from mmrank.engine.runners import unwrap_model


def test_nested_wrappers_come_off_and_an_average_stays(monkeypatch):
    class Wrapper(torch.nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

    wrappers = {**MODEL_WRAPPERS.module_dict, 'Wrapper': Wrapper}
    monkeypatch.setattr(MODEL_WRAPPERS, '_module_dict', wrappers)
    model = torch.nn.Linear(1, 1)
    assert unwrap_model(model) is model
    assert unwrap_model(Wrapper(torch.nn.DataParallel(model))) is model
    average = ExponentialMovingAverage(model)
    assert unwrap_model(Wrapper(average)) is average
