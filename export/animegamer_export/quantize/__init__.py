"""Quantised weights for ONNX parts: `blocks` makes codes and scales, `weights` writes graphs that read them.

create   blocks, calibrate, smooth    numbers in, numbers out; no graph is written
convert  weights, nodes               an ONNX file in, an ONNX file out, one tensor in memory at a time
choose   scheme, keep, sensitivity    what a precision's name means, what stays at 16 bits, and why
"""
