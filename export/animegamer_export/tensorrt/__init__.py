"""TensorRT engines built from a bundle's ONNX parts: `animegamer-rt build-engines`.

`graph` writes each part in the types TensorRT takes, `builder` builds one engine, `command` the ones asked for.
"""
