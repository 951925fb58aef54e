"""Record what transformers takes for keys that a config leaves out: defaults.json, one row for each model_type.

    python defaults.py        (transformers 5.23.0)
"""

import json
import os

from transformers import CONFIG_MAPPING

TYPES = """llama mistral ministral mixtral qwen2 qwen2_moe qwen3 qwen3_moe gemma gemma2 gemma3_text phi3 granite granitemoe smollm3 glm glm4 glm4_moe
cohere cohere2 ernie4_5 ernie4_5_moe olmo2 olmo3 olmoe hunyuan_v1_dense gpt_oss llama4_text""".split()
SIZES = dict(vocab_size=1000, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=8192, rms_norm_eps=1e-5)


def row(kind):
    config = CONFIG_MAPPING[kind](**SIZES)
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    return dict(rope_theta=rope["rope_theta"], head_dim=getattr(config, "head_dim", None) or 64, sliding_window=window or 0,
                partial_rotary_factor=rope.get("partial_rotary_factor", 1.0))


out = ",\n".join(f" {json.dumps(kind)}: {json.dumps(row(kind))}" for kind in TYPES)
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "defaults.json"), "w") as f:
    f.write("{\n" + out + "\n}\n")
