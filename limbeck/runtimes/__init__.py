"""What computes: torch, onnxruntime in float32 or with 8-bit weights, OpenVINO.

A runtime runs the transformers of a matcher (`use.py`) or its head (`onnx_head.py`). Everything else (pooling,
normalisation, projections, interactions) stays as it is, so a runtime works for every architecture.
"""
