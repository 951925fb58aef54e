#!/usr/bin/env python3
"""Record what the gguf package makes of random blocks, for quant_test.go.

    pip install gguf==0.19.0 numpy==2.4.6
    python gguf_blocks.py > gguf_blocks.json

For each format: "blocks" are stored bytes, "values" their float32 values. For
the formats that quantize: "input" float32, "stored" what it is quantized to.
All are base64 of little-endian bytes.
"""

import base64
import json
import sys

import gguf
import numpy as np

Q = gguf.GGMLQuantizationType
BLOCKS = 12
# Offsets of the float16 fields of a block; random bits there would be NaN.
HALVES = {Q.Q8_0: [0], Q.Q4_0: [0], Q.Q4_1: [0, 2], Q.Q4_K: [0, 2], Q.Q6_K: [208],
          Q.Q5_0: [0], Q.Q5_1: [0, 2], Q.Q2_K: [80, 82], Q.Q3_K: [108], Q.Q5_K: [0, 2], Q.IQ4_NL: [0]}


def text(a):
    return base64.b64encode(np.ascontiguousarray(a).tobytes()).decode()


def main():
    rng = np.random.default_rng(20)
    out = {}
    for kind, offsets in HALVES.items():
        size = gguf.GGML_QUANT_SIZES[kind][1]
        blocks = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
        for at in offsets:
            scales = (rng.standard_normal(BLOCKS) * 0.01).astype(np.float16)
            scales[:3] = [0, 6e-8, -65504]  # zero, the smallest subnormal, the largest
            blocks[:, at : at + 2] = scales.view(np.uint8).reshape(BLOCKS, 2)
        values = gguf.dequantize(blocks, kind).astype(np.float32)
        out[kind.name] = {"blocks": text(blocks), "values": text(values)}
    for kind in (Q.BF16, Q.Q8_0, Q.Q4_0, Q.Q4_1):
        x = (rng.standard_normal((64, 32)) * rng.lognormal(0, 3, (64, 1))).astype(np.float32)
        x[0] = 0
        x[1] = 0.25
        x[2, ::2] = 0
        entry = out.setdefault(kind.name, {})
        entry["input"], entry["stored"] = text(x), text(gguf.quantize(x, kind))
    json.dump(out, sys.stdout, indent=1)
    print()


main()
