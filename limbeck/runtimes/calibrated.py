"""Graphs with 8-bit products whose input ranges are fixed: nncf measures them on a sample of texts.

Outputs do not depend on the batch, as they do in `int8.py`, and OpenVINO fuses such products with what follows them.
They do depend on the sample, so it is part of the model's identity.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.metadata import version
from typing import Any

import numpy as np

from limbeck.errors import first_line
from limbeck.files import digest
from limbeck.runtimes.inputs import CannotExport

Inputs = dict[str, np.ndarray]  # of one pass, by their names


def inputs_digest(calls: Sequence[Inputs]) -> str:
    """The identity of a calibration: what it runs on, and the version that it runs in."""
    parts = [part for given in calls for name in sorted(given) for part in (name, given[name].tolist())]
    return digest(version("nncf"), str(parts))


def with_calibrated_products(graph: bytes, calls: Sequence[Inputs], bits: int) -> bytes:
    """The graph with its products in 8 bits, fitted to these inputs; `bits` of a weight, as in `int8.py`."""
    import onnx

    model = onnx.load_from_string(graph)
    names = [each.name for each in model.graph.input]  # a trace drops unused inputs
    given = [{name: call[name] for name in names} for call in calls]
    try:
        with _silent():
            os.environ.setdefault("NNCF_CI", "1")  # or else it reports every use to its makers
            import nncf
            from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters, OverflowFix

            nncf.set_log_level(50)
            fix = OverflowFix.DISABLE if bits == 8 else OverflowFix.ENABLE
            made: Any = nncf.quantize(
                model,
                nncf.Dataset(given),
                subset_size=len(given),
                model_type=nncf.ModelType.TRANSFORMER,
                advanced_parameters=AdvancedQuantizationParameters(overflow_fix=fix),
            )
    except Exception as error:  # the library has many kinds of errors
        raise CannotExport(first_line(error) or type(error).__name__) from error
    return bytes(made.SerializeToString())


@contextmanager
def _silent() -> Iterator[None]:
    """Without nncf's progress bars and warnings."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
