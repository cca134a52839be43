"""Graphs that are ready to run. Each gets its number of threads: torch's own setting binds only torch."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any, Protocol

import numpy as np

from limbeck.errors import LimbeckError, first_line
from limbeck.runtimes.choice import PACKAGES, require_runtime


class NeedsTorch(LimbeckError):
    """A runtime cannot run a model as torch does."""

    def __init__(self, problem: str, option: str = "--runtime") -> None:
        super().__init__(f"{problem}; use {option} torch")
        self.problem = problem


class Session(Protocol):
    """A graph in a runtime, on a number of threads. Several threads may call `run`."""

    names: list[str]  # of its inputs

    def run(self, given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The outputs for inputs by their names."""


class OnnxSession:
    """A graph in onnxruntime."""

    library = "onnxruntime"

    def __init__(self, graph: bytes, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors
        self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self.names = [each.name for each in self._session.get_inputs()]

    def run(self, given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return self._session.run(None, {name: given[name] for name in self.names})  # a trace drops unused inputs


class OpenVinoSession:
    """A graph in OpenVINO. It would compute in bfloat16 where the processor has it, unless float32 is asked for."""

    library = "OpenVINO"

    def __init__(self, graph: bytes, threads: int) -> None:
        import openvino

        settings: dict[str, Any] = {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        }
        core = openvino.Core()
        self._request = core.compile_model(core.read_model(graph), "CPU", settings).create_infer_request()
        self.names = [each.any_name for each in self._request.model_inputs]
        self._outputs = len(self._request.model_outputs)
        self._one_at_a_time = Lock()  # a second thread would be refused, or read the outputs of the first

    def run(self, given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        with self._one_at_a_time:
            self._request.infer({name: given[name] for name in self.names})
            return [np.array(self._request.get_output_tensor(at).data) for at in range(self._outputs)]


AnySession = OnnxSession | OpenVinoSession


def open_session(runtime: str, graph: bytes, threads: int, option: str | None = None) -> AnySession:
    """A graph in a runtime other than torch.

    With the option that the user chose it by, a graph that cannot be opened is a `LimbeckError`; without, a
    `ValueError`, for the caller to name the file.
    """
    require_runtime(runtime, option, only_run=True)
    kind: type[AnySession] = OpenVinoSession if PACKAGES[runtime][0][0] == "openvino" else OnnxSession
    try:
        return kind(graph, threads)
    except Exception as error:  # each library has errors of its own
        problem = f"the graph cannot be opened ({first_line(error)})"
        if option is None:
            raise ValueError(problem) from error
        raise NeedsTorch(f"{option} {runtime}: {problem}", option) from error
