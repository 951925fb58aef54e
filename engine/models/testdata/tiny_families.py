"""Small random checkpoints of the families other than Llama, each with every quirk of the published configs.

Each is a Hugging Face directory whose config.json has the published shape, sections and spelling. Weights are random
and scaled so that every part matters; quantized ones are drawn as random codes.
"""

import os
import shutil

import torch
import transformers
from safetensors.torch import save_file

import grouped
import tiny_llama
import tiny_recipes

STEPS = 40
IDS = {"bos_token_id": 256, "eos_token_id": 258}
FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])

QWEN2 = IDS | dict(
    architectures=["Qwen2ForCausalLM"], model_type="qwen2", vocab_size=320, hidden_size=96, intermediate_size=128,
    num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=1024, max_window_layers=2,
    rms_norm_eps=1e-6, rope_theta=1000000.0, sliding_window=64, use_sliding_window=False, tie_word_embeddings=False,
    hidden_act="silu", torch_dtype="bfloat16")
QWEN3 = IDS | dict(
    architectures=["Qwen3ForCausalLM"], model_type="qwen3", vocab_size=320, hidden_size=64, intermediate_size=96,
    num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=1024,
    max_window_layers=2, rms_norm_eps=1e-6, rope_theta=1000000, rope_scaling=None, sliding_window=None,
    use_sliding_window=False, tie_word_embeddings=True, attention_bias=False, hidden_act="silu", torch_dtype="bfloat16")
GPT_OSS = IDS | dict(
    architectures=["GptOssForCausalLM"], model_type="gpt_oss", vocab_size=320, hidden_size=64, intermediate_size=96,
    num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2, head_dim=16, max_position_embeddings=2048,
    initial_context_length=64, rms_norm_eps=1e-5, rope_theta=150000, sliding_window=24, attention_bias=True,
    layer_types=["sliding_attention", "full_attention"] * 2, hidden_act="silu", swiglu_limit=7.0, num_local_experts=8,
    num_experts_per_tok=3, experts_per_token=3, tie_word_embeddings=False,
    rope_scaling=dict(beta_fast=32.0, beta_slow=1.0, factor=32.0, original_max_position_embeddings=64, rope_type="yarn",
                      truncate=False),
    quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=[
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]))
GEMMA4_TEXT = dict(
    model_type="gemma4_text", attention_bias=False, attention_k_eq_v=True, bos_token_id=2, dtype="bfloat16",
    final_logit_softcapping=30.0, global_head_dim=32, head_dim=16, hidden_activation="gelu_pytorch_tanh", hidden_size=64,
    hidden_size_per_layer_input=0, intermediate_size=96, max_position_embeddings=1024, num_attention_heads=4,
    num_key_value_heads=2, num_global_key_value_heads=1, num_hidden_layers=6, num_kv_shared_layers=0,
    layer_types=(["sliding_attention"] * 5 + ["full_attention"]), rms_norm_eps=1e-6, sliding_window=24,
    rope_parameters=dict(
        full_attention=dict(partial_rotary_factor=0.25, rope_theta=1000000.0, rope_type="proportional"),
        sliding_attention=dict(rope_theta=10000.0, rope_type="default")),
    tie_word_embeddings=True, use_bidirectional_attention="vision", use_double_wide_mlp=False, vocab_size=320,
    vocab_size_per_layer_input=320, eos_token_id=1)
GEMMA4_VISION = dict(
    model_type="gemma4_vision", hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=2, head_dim=16, patch_size=4, pooling_kernel_size=3, position_embedding_size=64,
    rms_norm_eps=1e-6, default_output_length=16, hidden_activation="gelu_pytorch_tanh", max_position_embeddings=1024,
    attention_bias=False, standardize=True, use_clipped_linears=False,
    rope_parameters=dict(rope_theta=100.0, rope_type="default"))


def gemma4(**text):
    return dict(architectures=["Gemma4ForConditionalGeneration"], model_type="gemma4", dtype="bfloat16", audio_config=None,
                eos_token_id=[1, 106], tie_word_embeddings=True, text_config=GEMMA4_TEXT | text,
                vision_config=GEMMA4_VISION, vision_soft_tokens_per_image=16)


QWEN35_TEXT = dict(
    model_type="qwen3_5_text", attention_bias=False, attn_output_gate=True, bos_token_id=256, eos_token_id=258,
    dtype="bfloat16", full_attention_interval=4, head_dim=32, hidden_act="silu", hidden_size=64, intermediate_size=128,
    layer_types=(["linear_attention"] * 3 + ["full_attention"]) * 2, linear_conv_kernel_dim=4, linear_key_head_dim=16,
    linear_num_key_heads=2, linear_num_value_heads=6, linear_value_head_dim=32, mamba_ssm_dtype="float32",
    max_position_embeddings=2048, mtp_num_hidden_layers=1, mtp_use_dedicated_embeddings=False, num_attention_heads=4,
    num_hidden_layers=8, num_key_value_heads=2, partial_rotary_factor=0.25, rms_norm_eps=1e-6,
    rope_parameters=dict(mrope_interleaved=True, mrope_section=[2, 1, 1], partial_rotary_factor=0.25,
                         rope_theta=10000000, rope_type="default"),
    tie_word_embeddings=False, use_cache=True, vocab_size=320)
QWEN35_VISION = dict(
    model_type="qwen3_5", depth=1, hidden_size=32, intermediate_size=48, num_heads=2, in_channels=3, patch_size=4,
    spatial_merge_size=2, temporal_patch_size=2, out_hidden_size=64, num_position_embeddings=16,
    hidden_act="gelu_pytorch_tanh", deepstack_visual_indexes=[])


def qwen35(quantized, **text):
    out = dict(architectures=["Qwen3_5ForConditionalGeneration"], model_type="qwen3_5", tie_word_embeddings=False,
               text_config=QWEN35_TEXT | text,
               vision_config=QWEN35_VISION | dict(out_hidden_size=text.get("hidden_size", QWEN35_TEXT["hidden_size"])))
    if quantized:
        out["quantization_config"] = dict(
            activation_scheme="dynamic", fmt="e4m3", quant_method="fp8", weight_block_size=[128, 128],
            modules_to_not_convert=["lm_head", "model.language_model.embed_tokens", "*.linear_attn.conv1d",
                                    "*.linear_attn.in_proj_a", "*.linear_attn.in_proj_b", "model.visual.*", "mtp.fc"])
    return out


def int8(form, group=None, inputs=None):
    """A quantization_config of compressed-tensors with int8 weights, as llm-compressor writes it."""
    args = dict(actorder=None, block_structure=None, num_bits=8, observer_kwargs={}, symmetric=True, type="int")
    weights = args | dict(dynamic=False, group_size=group, observer="minmax", strategy="group" if group else "channel")
    if inputs:
        inputs = args | dict(dynamic=True, group_size=None, observer=None, strategy="token")
    return dict(
        quant_method="compressed-tensors", format=form, quantization_status="compressed", global_compression_ratio=None,
        kv_cache_scheme=None, ignore=["lm_head"],
        config_groups=dict(group_0=dict(targets=["Linear"], input_activations=inputs, output_activations=None, weights=weights)))


# name -> config.json, the class that is run, prefix of its tensors in the file, seed, prompt length
CHECKPOINTS = {
    "tiny-qwen2": dict(config=QWEN2, run="Qwen2ForCausalLM", embed=0.5, seed=21, prompt=100),
    "tiny-qwen3": dict(config=QWEN3, run="Qwen3ForCausalLM", embed=0.4, seed=22, prompt=100),
    "tiny-gpt-oss": dict(config=GPT_OSS, run="GptOssForCausalLM", embed=0.5, seed=23, prompt=150),
    "tiny-gemma4": dict(config=gemma4(), run="Gemma4ForCausalLM", embed=0.15, seed=24, prompt=150),
    "tiny-gemma4-moe": dict(
        config=gemma4(enable_moe_block=True, num_experts=8, top_k_experts=3, moe_intermediate_size=32),
        run="Gemma4ForCausalLM", embed=0.15, seed=25, prompt=150),
    # E2B: embeddings for each layer, keys and values of earlier layers of either type, wide MLPs there.
    "tiny-gemma4-e": dict(
        config=gemma4(hidden_size_per_layer_input=16, num_kv_shared_layers=2, use_double_wide_mlp=True, intermediate_size=32,
                      num_hidden_layers=5, num_attention_heads=2, vocab_size=160, vocab_size_per_layer_input=160,
                      layer_types=["sliding_attention", "full_attention"] + ["sliding_attention"] * 2 + ["full_attention"],
                      attention_k_eq_v=False, num_key_value_heads=1, num_global_key_value_heads=None,
                      use_bidirectional_attention=None) | dict(vision_config=GEMMA4_VISION | dict(use_clipped_linears=True)),
        run="Gemma4ForCausalLM", embed=0.15, seed=35, prompt=72, steps=16),
    "tiny-qwen35": dict(config=qwen35(False), run="Qwen3_5ForCausalLM", embed=0.5, seed=26, prompt=150),
    # Wider than a block of scales in both directions.
    "tiny-qwen35-fp8": dict(
        config=qwen35(True, hidden_size=160, num_hidden_layers=4, layer_types=["linear_attention"] * 3 + ["full_attention"]),
        run="Qwen3_5ForCausalLM", embed=0.5, seed=27, prompt=140),
    "tiny-w8a16": dict(config=QWEN2 | dict(quantization_config=int8("pack-quantized", group=32)),
                       run="Qwen2ForCausalLM", embed=0.5, seed=28, prompt=100),
    "tiny-w4a16": dict(config=QWEN2 | dict(quantization_config=grouped.int4(32, False)),
                       run="Qwen2ForCausalLM", embed=0.5, seed=30, prompt=100),
    "tiny-awq": dict(config=QWEN2 | dict(quantization_config=grouped.awq(32), torch_dtype="float16"),
                     run="Qwen2ForCausalLM", embed=0.5, seed=31, prompt=100),
    "tiny-gptq": dict(config=QWEN3 | dict(quantization_config=grouped.gptq(4, 32, False, order=True), torch_dtype="float16"),
                      run="Qwen3ForCausalLM", embed=0.4, seed=32, prompt=100),
    "tiny-nvfp4": dict(config=QWEN2 | dict(quantization_config=grouped.nvfp4(), tie_word_embeddings=True, intermediate_size=64),
                       run="Qwen2ForCausalLM", embed=0.5, seed=33, prompt=72, steps=16),
    "tiny-w8a8": dict(config=QWEN3 | dict(quantization_config=int8("int-quantized", inputs=True)),
                      run="Qwen3ForCausalLM", embed=0.4, seed=29, prompt=100),
}

CHECKPOINTS |= tiny_recipes.CHECKPOINTS

# name of a golden file -> the checkpoint that is run with the inputs of its fp8 layers rounded too
ROUNDED = {"tiny-qwen35-fp8-x8": "tiny-qwen35-fp8"}


def run_config(spec):
    """The configuration object of the text model alone, without quantization."""
    config = dict(spec["config"].get("text_config", spec["config"]))
    config.pop("quantization_config", None)
    cls = getattr(transformers, spec["run"])
    settings = cls.config_class if "text_config" not in spec["config"] else text_class(spec["run"])
    out = getattr(transformers, spec.get("settings", settings.__name__))(**config)
    out.architectures = spec["config"]["architectures"]
    return cls, out


def text_class(run):
    return {"Gemma3ForCausalLM": transformers.Gemma3TextConfig, "Ministral3ForCausalLM": transformers.Ministral3Config, "Gemma4ForCausalLM": transformers.Gemma4TextConfig, "Qwen3_5ForCausalLM": transformers.Qwen3_5TextConfig}[run]


def draw(name, shape, spec, generator):
    """Random weights under which every part of the model matters."""
    r = torch.randn(shape, generator=generator)
    # Weights around zero.
    centred = spec["run"] in ("Qwen3_5ForCausalLM", "GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM") and "linear_attn.norm" not in name
    if "norm" in name and name.endswith("weight"):
        return 0.2 * r if centred else 1 + 0.2 * r
    if name.endswith("layer_scalar"):
        return 0.8 + 0.1 * r
    if name.endswith(("router.scale", "per_expert_scale")):
        return 1 + 0.2 * r
    if name.endswith(("bias", "sinks", "A_log", "_bias")):
        return 0.5 * r if name.endswith(("A_log", "sinks")) else 0.3 * r
    if "embed_tokens" in name:
        return spec["embed"] * r
    if "conv1d" in name:
        return 0.6 * r
    if "router" in name:
        return 3 * shape[-1] ** -0.5 * r
    return 1.3 * shape[-1] ** -0.5 * r


def halves(shape, generator):
    """An MXFP4 matrix [..., rows, cols]: its two tensors and its values."""
    *outer, cols = shape
    codes = torch.randint(0, 16, (*outer, cols // 32, 32), generator=generator)
    exponents = torch.randint(120, 124, (*outer, cols // 32), generator=generator)
    values = FP4[codes] * 2.0 ** (exponents - 127).unsqueeze(-1)
    pairs = codes.view(*outer, cols // 32, 16, 2)
    packed = (pairs[..., 0] | pairs[..., 1] << 4).to(torch.uint8)
    return packed, exponents.to(torch.uint8), values.view(*outer, cols).float()


def blocks(weight):
    """A matrix in fp8 with a bf16 scale for each 128 x 128 block: its two tensors and its values."""
    rows, cols = weight.shape
    q, s, back = torch.empty(rows, cols, dtype=torch.float8_e4m3fn), [], torch.empty(rows, cols)
    for i in range(0, rows, 128):
        s.append([])
        for j in range(0, cols, 128):
            part = weight[i:i + 128, j:j + 128]
            scale = (part.abs().max() / 448).to(torch.bfloat16).float()
            q[i:i + 128, j:j + 128] = (part / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
            back[i:i + 128, j:j + 128] = q[i:i + 128, j:j + 128].float() * scale
            s[-1].append(scale)
    return q, torch.tensor(s).to(torch.bfloat16), back


def codes(weight, group):
    """A matrix in int8 with a bf16 scale for each row, or for each group of a row: codes, scales and its values.

    As compressed-tensors has it: a scale is the largest number over 127.5, codes are -128 to 127, and a weight is
    its code times its scale.
    """
    rows, cols = weight.shape
    parts = weight.view(rows, -1, group or cols)
    scale = (parts.abs().amax(-1, keepdim=True) / 127.5).to(torch.bfloat16)
    q = torch.round(parts / scale.float()).clamp(-128, 127)
    return q.view(rows, cols).to(torch.int8), scale.squeeze(-1), (q * scale.float()).view(rows, cols)


def store_codes(stored, where, weight, spec):
    """Put int8 tensors in stored, packed four to an int32 (code + 128, the first lowest) or not; return the values."""
    config = spec["config"]["quantization_config"]
    q, scale, values = codes(weight, config["config_groups"]["group_0"]["weights"]["group_size"])
    stored[where + "_scale"] = scale
    if config["format"] == "pack-quantized":
        raised = (q.to(torch.int16) + 128).to(torch.uint8)
        stored[where + "_packed"] = raised.contiguous().view(torch.int32)
        stored[where + "_shape"] = torch.tensor(q.shape, dtype=torch.int64)
    else:
        stored[where] = q
    return values


def rounded(x):
    """Rows rounded to int8, with one scale per token, as vLLM does (largest over 127)."""
    largest = x.abs().amax(-1, keepdim=True)
    return torch.round(x * (127 / largest)) * (largest / 127)


def round_inputs(model, spec):
    """Round the inputs of int8 layers and of both products of experts."""
    groups = spec["config"].get("quantization_config", {}).get("config_groups", {})
    if not groups or not groups["group_0"]["input_activations"] or grouped.floats(spec["config"]["quantization_config"]):
        return
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            module.register_forward_pre_hook(lambda _module, args: (rounded(*args),))
        if name.endswith(".experts"):
            module.forward = rounding_products(module.forward)


def rounding_products(forward):
    """A forward pass of experts that rounds the inputs of its products."""

    def run(*args):
        linear = torch.nn.functional.linear
        torch.nn.functional.linear = lambda x, weight: linear(rounded(x), weight)
        try:
            return forward(*args)
        finally:
            torch.nn.functional.linear = linear

    return run


def round_blocks(model, spec):
    """Round the inputs of fp8 layers to E4M3, with one scale per 128 neighbours (largest over 448), as vLLM does."""

    def rounded(_module, args):
        x, = args
        parts = [(p, p.abs().amax(-1, keepdim=True)) for p in x.split(128, dim=-1)]
        return torch.cat([(p * (448 / m)).to(torch.float8_e4m3fn).float() * (m / 448) for p, m in parts], dim=-1),

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and quantized(name + ".weight", spec):
            module.register_forward_pre_hook(rounded)


def by_groups(name, spec):
    """Linear layers with integer codes of at most 4 bits."""
    config = spec["config"].get("quantization_config", {})
    return name.endswith("proj.weight") and (
        config.get("quant_method") in ("gptq", "awq") or config.get("config_groups", {}).get("group_0", {}).get("weights", {}).get("num_bits") == 4)


def compressed(name, spec):
    """Linear layers that the int8 config converts."""
    config = spec["config"].get("quantization_config", {})
    return config.get("quant_method") == "compressed-tensors" and name.endswith("proj.weight")


def quantized(name, spec):
    """Linear layers that the fp8 config converts."""
    return ("quantization_config" in spec["config"] and spec["run"] == "Qwen3_5ForCausalLM" and name.endswith("proj.weight")
            or name.endswith(("in_proj_qkv.weight", "in_proj_z.weight")) and "quantization_config" in spec["config"])


def build(spec):
    """The model in float32, and the tensors of its file."""
    generator = torch.Generator().manual_seed(spec["seed"])
    cls, config = run_config(spec)
    with torch.device("meta"):
        meta = cls(config)
    state, stored = {}, {}
    prefix = spec.get("prefix", "model.language_model." if "text_config" in spec["config"] else "model.")
    tensors = dict(meta.named_parameters())
    tensors |= {n: b for n, b in meta.named_buffers() if n.endswith("layer_scalar")}
    for name, p in tensors.items():
        where = prefix + name[len("model."):] if name.startswith("model.") else spec.get("prefix", "model.").removesuffix("model.") + name
        if spec["run"] == "GptOssForCausalLM" and name.endswith(("gate_up_proj", "down_proj")):
            experts, inner, outer = p.shape  # transformers keeps [experts, in, out]
            stored[where + "_blocks"], stored[where + "_scales"], w = halves((experts, outer, inner), generator)
            state[name] = w.transpose(1, 2).contiguous()
        elif by_groups(name, spec):
            stored_as = spec["config"]["quantization_config"]
            dtype = torch.bfloat16 if stored_as["quant_method"] == "compressed-tensors" else torch.float16
            # Matrices with the same inputs have one order.
            seed = sum(name.split("self_attn")[0].split("mlp")[0].encode()) + 3 * ("mlp" in name) + ("o_proj" in name or "down" in name)
            parts, state[name] = grouped.pack(draw(name, p.shape, spec, generator), stored_as, dtype, seed)
            stored |= {where.removesuffix(".weight") + end: t for end, t in parts.items()}
        elif compressed(name, spec):
            state[name] = store_codes(stored, where, draw(name, p.shape, spec, generator), spec)
        elif quantized(name, spec):
            stored[where], stored[where + "_scale_inv"], state[name] = blocks(draw(name, p.shape, spec, generator))
        else:
            stored[where] = draw(name, p.shape, spec, generator).to(torch.bfloat16)
            state[name] = stored[where].float()
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
        stored.pop("lm_head.weight", None)
    config._attn_implementation = "eager"
    model = cls(config).float()
    missing, unexpected = model.load_state_dict(state, strict=False)
    missing = [m for m in missing if "inv_freq" not in m and "embed_scale" not in m]
    if missing or unexpected:
        raise SystemExit(f"tensors do not fit: {missing} {unexpected}")
    round_inputs(model, spec)
    return model.eval(), {n: t.contiguous() for n, t in stored.items()}


def write(root, name):
    """Write the directory of one checkpoint; return its model in float32 and its weight files."""
    checkpoint = ROUNDED.get(name, name)
    spec, directory = CHECKPOINTS[checkpoint], os.path.join(root, checkpoint)
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    model, stored = build(spec)
    tiny_llama.dump(f"{directory}/config.json", spec["config"])
    path = f"{directory}/model.safetensors"
    save_file(stored, path, metadata={"format": "pt"})
    os.chmod(path, 0o644)
    if name in ROUNDED:
        round_blocks(model, spec)
    return model, [path]


def steps(name):
    return CHECKPOINTS[ROUNDED.get(name, name)].get("steps", STEPS)


def prompt(name):
    spec = CHECKPOINTS[ROUNDED.get(name, name)]
    generator = torch.Generator().manual_seed(100 + spec["seed"])
    vocab = spec["config"].get("text_config", spec["config"])["vocab_size"]
    return torch.randint(0, vocab, (spec["prompt"],), generator=generator)
