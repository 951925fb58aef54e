"""Small random checkpoints with a vision tower, and prompts with images for them.

Each is a Hugging Face directory in bfloat16 whose config.json has the published shape, sections and spelling. Pixels
come from a formula (pixels below), which enginetest.Pixels repeats.
"""

import os
import shutil

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

import tiny_families
import tiny_llama

VOCAB = 128
STEPS = 16
BEGIN, END, IMAGE, VIDEO, AUDIO = 120, 121, 122, 123, 124  # token ids
TEXT_IDS = (3, 120)  # tokens of text: from, to

GEMMA4_VISION = dict(
    model_type="gemma4_vision", hidden_size=40, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=2, head_dim=24, patch_size=4, pooling_kernel_size=3, position_embedding_size=16,
    rms_norm_eps=1e-6, default_output_length=20, hidden_activation="gelu_pytorch_tanh", max_position_embeddings=1024,
    attention_bias=False, standardize=True, use_clipped_linears=False,
    rope_parameters=dict(rope_theta=100.0, rope_type="default"))
QWEN35_VISION = dict(
    model_type="qwen3_5", depth=2, hidden_size=24, intermediate_size=40, num_heads=2, in_channels=3, patch_size=4,
    spatial_merge_size=2, temporal_patch_size=2, out_hidden_size=64, num_position_embeddings=25,
    hidden_act="gelu_pytorch_tanh", deepstack_visual_indexes=[])


def gemma4(vision, **text):
    """A window of 12, shorter than the largest image."""
    whole = tiny_families.gemma4(sliding_window=12, vocab_size=VOCAB, vocab_size_per_layer_input=VOCAB, **text)
    return whole | dict(
        vision_config=GEMMA4_VISION | vision, vision_soft_tokens_per_image=20, boi_token_id=BEGIN, eoi_token_id=END,
        image_token_id=IMAGE, video_token_id=VIDEO, audio_token_id=AUDIO)


def qwen35(**text):
    whole = tiny_families.qwen35(False, vocab_size=VOCAB, tie_word_embeddings=True, bos_token_id=2, eos_token_id=1,
                                 mtp_num_hidden_layers=0, **text)
    return whole | dict(tie_word_embeddings=True, vision_config=QWEN35_VISION, vision_start_token_id=BEGIN,
                        vision_end_token_id=END, image_token_id=IMAGE, video_token_id=VIDEO)


# name -> config.json, the text model's class (for its weights), the model's class, seed; side: patches of a side that
# one token covers
CHECKPOINTS = {
    "tiny-gemma4-tower": dict(
        config=gemma4({}, num_hidden_layers=3, layer_types=["sliding_attention"] * 2 + ["full_attention"], intermediate_size=48),
        run="Gemma4ForCausalLM", model="Gemma4ForConditionalGeneration", settings="Gemma4Config", embed=0.15, seed=41, side=3),
    "tiny-gemma4-moe-tower": dict(
        config=gemma4(dict(hidden_size=32, head_dim=16, num_hidden_layers=1), num_hidden_layers=2, intermediate_size=32,
                      layer_types=["sliding_attention", "full_attention"], enable_moe_block=True, num_experts=4, top_k_experts=2,
                      moe_intermediate_size=32),
        run="Gemma4ForCausalLM", model="Gemma4ForConditionalGeneration", settings="Gemma4Config", embed=0.15, seed=42, side=3),
    "tiny-qwen35-tower": dict(
        config=qwen35(num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"],
                      full_attention_interval=2, intermediate_size=32, linear_num_value_heads=4, linear_value_head_dim=16,
                      num_key_value_heads=1),
        run="Qwen3_5ForCausalLM", model="Qwen3_5ForConditionalGeneration", settings="Qwen3_5Config", embed=0.5, seed=43, side=2),
}

# Images: tokens across and down. The largest has more tokens than a window.
IMAGES = {"A": (3, 2), "B": (4, 5), "C": (1, 1), "D": (2, 4), "F": (2, 1)}

# Prompts: a number is that many tokens of text, a letter an image between the tokens that begin and end one, a list a
# video: its frames (Qwen: pairs of frames), each behind LABEL tokens of text.
LABEL = 2
CASES = {
    "first": ["B", 19],
    "middle": [14, "A", 13],
    "several": [6, "A", 4, "C", 3, "D", 9],
    "adjacent": [7, "D", "B", 8],
    "long": [17, "B", 9, "A", 21, "D", 14, "B", 5],
    "video": [4, ["F", "F"], 2, "C", 3],
}
# Other seeds for prompts whose continuation would have a placeholder: transformers embeds it as padding.
SEEDS = {
    ("tiny-gemma4-tower", "first"): 1, ("tiny-gemma4-moe-tower", "adjacent"): 1, ("tiny-qwen35-tower", "first"): 1,
    ("tiny-qwen35-tower", "middle"): 2, ("tiny-qwen35-tower", "adjacent"): 4, ("tiny-qwen35-tower", "long"): 2, ("tiny-qwen35-tower", "video"): 1,
}


def pixels(seed, patches, cols):
    """Colours of an item's patches, [patches, cols]: hashes of the numbers' indices, in steps of 1/256."""
    h = np.arange(patches * cols, dtype=np.uint64) * 0x9E3779B9 + seed
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = (h & 0xFFFFFFFF) ^ ((h & 0xFFFFFFFF) >> shift)
        h = h * factor & 0xFFFFFFFF
    h ^= h >> 16
    return torch.from_numpy((h >> 24).astype(np.float32) / 256).view(patches, cols)


def draw(name, shape, spec, generator):
    """Random weights of tower and text model under which every part matters."""
    if "visual" not in name and "vision" not in name:
        return tiny_families.draw(name, shape, spec, generator)
    r = torch.randn(shape, generator=generator)
    if "norm" in name and not name.endswith("bias") or name.endswith("std_scale"):
        return 1 + 0.2 * r
    if name.endswith("bias") or "table" in name:
        return 0.3 * r
    if "pos_embed" in name:
        return 0.5 * r
    return 1.3 * r[0].numel() ** -0.5 * r


def empty(spec):
    """The model of a checkpoint in float32, with weights of any value."""
    config = getattr(transformers, spec["settings"])(**spec["config"])
    for part in (config, config.text_config, config.vision_config):
        part._attn_implementation = "eager"
    return getattr(transformers, spec["model"])(config).float()


def fill(model, stored):
    """Give a model the tensors of its file."""
    missing, unexpected = model.load_state_dict({n: w.float() for n, w in stored.items()}, strict=False)
    if set(missing) - {"lm_head.weight"} or unexpected:
        raise SystemExit(f"tensors do not fit: {missing} {unexpected}")
    model.tie_weights()
    return model.eval()


def load(root, name):
    """The model of a written checkpoint in float32."""
    return fill(empty(CHECKPOINTS[name]), load_file(os.path.join(root, name, "model.safetensors")))


def write(root, name):
    """Write the directory of one checkpoint; return its model in float32 and its weight files."""
    spec, directory = CHECKPOINTS[name], os.path.join(root, name)
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    tiny_llama.dump(f"{directory}/config.json", spec["config"])
    generator, model = torch.Generator().manual_seed(spec["seed"]), empty(spec)
    stored = {n: draw(n, w.shape, spec, generator).to(torch.bfloat16).contiguous()
              for n, w in sorted(model.state_dict().items()) if n != "lm_head.weight"}
    path = f"{directory}/model.safetensors"
    save_file(stored, path, metadata={"format": "pt"})
    os.chmod(path, 0o644)
    model.config.architectures = spec["config"]["architectures"]
    return fill(model, stored), [path]


def cases(name):
    """The prompts that are recorded of a checkpoint."""
    return [c for c in CASES if c != "video" or "moe" not in name]


def prompt(name, case):
    """The token ids of a prompt, and its items: position of the first token, tokens, patches across and down, seed."""
    spec, number = CHECKPOINTS[name], list(CASES).index(case)
    generator = torch.Generator().manual_seed(SEEDS.get((name, case), 1000 * spec["seed"] + number))
    ids, items = [], []
    text = lambda n: torch.randint(*TEXT_IDS, (n,), generator=generator).tolist()
    for part in CASES[case]:
        if isinstance(part, int):
            ids += text(part)
            continue
        for image in part:
            if isinstance(part, list):
                ids += text(LABEL)
            across, down = IMAGES[image]
            ids.append(BEGIN)
            items.append((len(ids), across * down, across * spec["side"], down * spec["side"], 100 * number + len(items)))
            ids += [VIDEO if isinstance(part, list) else IMAGE] * (across * down) + [END]
    return torch.tensor(ids), items
