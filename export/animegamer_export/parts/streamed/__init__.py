"""ONNX parts of any size without holding the model: graphs traced on stand-ins, weights written one after the other.

The graphs are those of `animegamer_export.parts`; only where the weights come from, and when, differs.
"""
