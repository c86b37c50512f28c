"""TensorRT engines built from a bundle's ONNX parts: `animegamer-rt build-engines`.

`graph` converts each part to TensorRT's types, `builder` builds one engine, `command` the requested ones.
"""
