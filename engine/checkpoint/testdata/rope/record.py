"""Records the frequencies and scales of transformers' ROPE_INIT_FUNCTIONS.

Run with the requirements of engine/models/testdata/requirements.txt:

    python engine/checkpoint/testdata/rope/record.py > engine/checkpoint/testdata/rope/init-functions-5.23.0.json

Each case has the keys of a config.json (the rope and what it depends on), the length for which the
rope is computed, and inv_freq and scale as the function returns them.
"""

import json

from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

SHORT = [1.0 + 0.03125 * i for i in range(16)]
LONG = [1.0 + 0.5 * i * i for i in range(16)]

# name: (max_position_embeddings, head_dim, original outside the rope or None, planned length, rope)
CASES = {
    "linear": (4096, 32, None, 4096, {"rope_type": "linear", "factor": 4.0}),
    "linear-partial": (4096, 64, None, 4096, {"rope_type": "linear", "factor": 2.5, "partial_rotary_factor": 0.5}),
    "dynamic-trained": (4096, 32, None, 4096, {"rope_type": "dynamic", "factor": 2.0}),
    "dynamic-8k": (4096, 32, None, 8192, {"rope_type": "dynamic", "factor": 2.0}),
    "dynamic-12k": (2048, 64, None, 12288, {"rope_type": "dynamic", "factor": 6.0, "rope_theta": 1e6}),
    "yarn": (32768, 32, None, 131072, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768, "rope_theta": 1e6}),
    "yarn-mscale": (4096, 64, None, 163840, {"rope_type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "mscale": 1.0, "mscale_all_dim": 0.7, "beta_fast": 32, "beta_slow": 1}),
    "yarn-plain-ends": (4096, 64, None, 131072, {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False, "attention_factor": 1.25, "beta_fast": 16.0, "beta_slow": 2.0, "rope_theta": 150000.0}),
    "longrope-short": (131072, 32, 4096, 4096, {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG}),
    "longrope-long": (131072, 32, 4096, 4097, {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG}),
    "longrope-inside": (8192, 32, None, 8192, {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG, "original_max_position_embeddings": 2048, "factor": 16.0}),
    "longrope-partial": (131072, 64, 4096, 131072, {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG, "partial_rotary_factor": 0.5, "attention_factor": 1.5}),
    "llama3": (131072, 32, None, 131072, {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_theta": 500000.0}),
    "proportional": (131072, 64, None, 131072, {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}),
    "proportional-factor": (131072, 64, None, 131072, {"rope_type": "proportional", "partial_rotary_factor": 0.5, "factor": 8.0}),
}


def main():
    out = {}
    for name, (longest, head, original, length, rope) in CASES.items():
        rope = {"rope_theta": 10000.0, **rope}
        keys = {"max_position_embeddings": longest, "head_dim": head, "rope_parameters": rope}
        if original:
            keys["original_max_position_embeddings"] = original
        config = LlamaConfig(hidden_size=4 * head, num_attention_heads=4, num_key_value_heads=2, **json.loads(json.dumps(keys)))
        freq, scale = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, "cpu", seq_len=length)
        out[name] = {"config": keys, "length": length, "scale": scale, "inv_freq": [float(f"{x:.9g}") for x in freq.tolist()]}
    print("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in out.items()) + "\n}")


if __name__ == "__main__":
    main()
