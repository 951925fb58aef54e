"""Record the output of Qwen3.5's vision tower for one small image.

    python record_tower_qwen35.py

Rewrites tiny-qwen35-tower/: config.json, and a model.safetensors with the weights of the tower under their published
names, the image (input.pixels [patches, 3·2·4·4] between 0 and 1 in squares of 2 × 2 patches, input.places [patches, 2]:
column and row) and the resulting tokens (output [patches / 4, hidden]); float32.
"""

import json
import os

import torch
from safetensors.torch import save_file
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5VisionConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5VisionModel
from transformers.vision_utils import get_vision_position_ids

import golden

HERE = os.path.dirname(os.path.abspath(__file__))
ACROSS, DOWN = 8, 6
TEXT = dict(
    model_type="qwen3_5_text", hidden_size=24, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=1, head_dim=16, vocab_size=320, max_position_embeddings=64, rms_norm_eps=1e-6, hidden_act="silu",
    layer_types=["full_attention"], linear_num_key_heads=1, linear_num_value_heads=1, dtype="float32",
    rope_parameters=dict(rope_theta=10000.0, rope_type="default", mrope_section=[1, 1, 0], mrope_interleaved=True))
VISION = dict(
    model_type="qwen3_5", depth=2, hidden_size=24, intermediate_size=40, num_heads=2, in_channels=3, patch_size=4,
    spatial_merge_size=2, temporal_patch_size=2, out_hidden_size=24, num_position_embeddings=25,
    hidden_act="gelu_pytorch_tanh")


def draw(name, shape, generator):
    r = torch.randn(shape, generator=generator)
    if name.endswith("bias"):
        return 0.3 * r
    if "norm" in name:
        return 1 + 0.2 * r
    if "pos_embed" in name:
        return 0.5 * r
    return 1.3 * (r[0].numel()) ** -0.5 * r


@torch.no_grad()
def main():
    golden.setup()
    generator = torch.Generator().manual_seed(35)
    config = Qwen3_5VisionConfig(**VISION)
    config._attn_implementation = "eager"
    tower = Qwen3_5VisionModel(config)
    state = {name: draw(name, w.shape, generator) for name, w in tower.state_dict().items()}
    tower.load_state_dict(state)
    tower.eval()
    grid = torch.tensor([[1, DOWN, ACROSS]])
    pixels = torch.rand((ACROSS * DOWN, 3 * 2 * 4 * 4), generator=generator)
    places = get_vision_position_ids(grid, config.spatial_merge_size)
    output = tower(2 * pixels - 1, grid).pooler_output
    tensors = {"model.visual." + name: w for name, w in state.items()}
    tensors |= {"input.pixels": pixels, "input.places": places.flip(1).float(), "output": output}
    out = f"{HERE}/tiny-qwen35-tower"
    os.makedirs(out, exist_ok=True)
    save_file({k: v.contiguous() for k, v in tensors.items()}, f"{out}/model.safetensors")
    with open(f"{out}/config.json", "w") as f:
        json.dump(dict(architectures=["Qwen3_5ForConditionalGeneration"], model_type="qwen3_5", dtype="float32",
                       tie_word_embeddings=False, text_config=TEXT, vision_config=VISION), f, indent=2)
        f.write("\n")


if __name__ == "__main__":
    main()
