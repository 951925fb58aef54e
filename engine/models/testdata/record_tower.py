"""Record the output of Gemma 4's vision tower and projection for one small image.

    python record_tower.py

Rewrites tiny-gemma4-tower/: config.json, and a model.safetensors with the weights of the tower under their published
names, the image (input.pixels [patches, 3·4·4], input.places [patches, 2]: column and row) and the output of the
projection (output [patches / 9, hidden]); float32.
"""

import json
import os

import torch
from safetensors.torch import save_file
from transformers import Gemma4TextConfig, Gemma4VisionConfig
from transformers.models.gemma4.modeling_gemma4 import Gemma4MultimodalEmbedder, Gemma4VisionModel

import golden

HERE = os.path.dirname(os.path.abspath(__file__))
ACROSS, DOWN = 9, 6
TEXT = dict(
    model_type="gemma4_text", hidden_size=24, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=1, head_dim=16, global_head_dim=16, vocab_size=320, max_position_embeddings=64, rms_norm_eps=1e-6,
    hidden_size_per_layer_input=0, layer_types=["full_attention"], sliding_window=16,
    hidden_activation="gelu_pytorch_tanh", dtype="float32")
VISION = dict(
    model_type="gemma4_vision", hidden_size=40, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2,
    num_key_value_heads=2, head_dim=24, patch_size=4, pooling_kernel_size=3, position_embedding_size=16,
    rms_norm_eps=1e-6, default_output_length=6, hidden_activation="gelu_pytorch_tanh", attention_bias=False,
    standardize=True, use_clipped_linears=False, rope_parameters=dict(rope_theta=100.0, rope_type="default"))


def draw(name, shape, generator):
    r = torch.randn(shape, generator=generator)
    if "norm" in name or name == "std_scale":
        return 1 + 0.2 * r
    if name == "std_bias" or "table" in name:
        return 0.3 * r
    return 1.3 * shape[-1] ** -0.5 * r


@torch.no_grad()
def main():
    golden.setup()
    generator = torch.Generator().manual_seed(31)
    config = Gemma4VisionConfig(**VISION | dict(rope_parameters=dict(rope_theta=100.0, rope_type="axial")))
    config._attn_implementation = "eager"
    tower, projection = Gemma4VisionModel(config), Gemma4MultimodalEmbedder(config, Gemma4TextConfig(**TEXT))
    tensors = {}
    for prefix, module in (("model.vision_tower.", tower), ("model.embed_vision.", projection)):
        state = {name: draw(name, w.shape, generator) for name, w in module.state_dict().items()}
        module.load_state_dict(state)
        module.eval()
        tensors |= {prefix + name: w for name, w in state.items()}
    places = torch.tensor([[x, y] for y in range(DOWN) for x in range(ACROSS)])
    pixels = torch.rand((len(places), 48), generator=generator)
    encoded = tower(pixel_values=pixels[None], pixel_position_ids=places[None]).last_hidden_state
    tensors |= {"input.pixels": pixels, "input.places": places.float(), "output": projection(inputs_embeds=encoded)}
    out = f"{HERE}/tiny-gemma4-tower"
    os.makedirs(out, exist_ok=True)
    save_file({k: v.contiguous() for k, v in tensors.items()}, f"{out}/model.safetensors")
    with open(f"{out}/config.json", "w") as f:
        json.dump(dict(architectures=["Gemma4ForConditionalGeneration"], model_type="gemma4", dtype="float32",
                       tie_word_embeddings=True, text_config=TEXT, vision_config=VISION), f, indent=2)
        f.write("\n")


if __name__ == "__main__":
    main()
