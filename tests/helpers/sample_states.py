"""Temperatures per sample, from settings in one row."""

from dataclasses import fields

from mmrank.state import SampleTemperature, TemperatureStep

_STEP = {field.name for field in fields(TemperatureStep)}


def temperature(size: int, **settings) -> SampleTemperature:
    """A ``SampleTemperature``; the settings of its step stand beside its own."""
    step = TemperatureStep(**{k: v for k, v in settings.items() if k in _STEP})
    own = {k: v for k, v in settings.items() if k not in _STEP}
    return SampleTemperature(size, step=step, **own)
