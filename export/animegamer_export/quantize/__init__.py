"""Quantised weights for ONNX parts.

create   blocks, ranges, smoothing           arrays in, arrays out: codes, scales, ranges of activations
convert  weights, nodes, graph               an ONNX file in, an ONNX file out, one tensor in memory at a time
choose   scheme, exclusions                  what a precision's name means, what stays at 16 bits, and why
compare  fake_quantize                       torch weights rounded as a quantised part's are
"""
