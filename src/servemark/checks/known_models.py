"""Architectures (`models/*.yaml`) of the models that masters name, read once each."""

from __future__ import annotations

import re
from functools import cache

from servemark.base.errors import ServemarkError
from servemark.catalog.architecture import Architecture
from servemark.catalog.architectures import architecture
from servemark.checks.golden import plain_model
from servemark.sizing.weights import parameters_of, weight_bytes

_DATE = re.compile(r"-\d{4}\Z")


@cache
def model_of(name: str) -> Architecture | None:
    """The architecture of a model by its repository, or by its name without owner, precision, `preview` and month
    of release; None where it is not among the known ones."""
    plain = plain_model(name.lower().removesuffix("-preview"))
    for wanted in (name, plain, _DATE.sub("", plain)):
        try:
            return architecture(wanted)
        except ServemarkError:
            continue
    return None


@cache
def model_bytes(name: str, precision: str) -> int | None:
    """Bytes of a model's weights in a precision, by arithmetic over its published geometry; None where the model or
    that form of it is not known."""
    model = model_of(name)
    form = model.precision(precision) if model is not None else None
    return weight_bytes(parameters_of(model), form) if model is not None and form is not None else None
