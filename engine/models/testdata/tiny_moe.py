"""Small random checkpoints of families with mixtures of experts, each with every quirk of the published configs.

Written as published: a tensor for each expert and matrix, or one for all experts. transformers keeps gate and up of all
experts in one tensor; stored() splits it.
"""

import os
import shutil

import torch
import transformers
from safetensors.torch import save_file

import grouped
import tiny_families
import tiny_llama

STEPS = 40
IDS = {"bos_token_id": 256, "eos_token_id": 258}
BASE = IDS | dict(
    vocab_size=320, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=1024, rms_norm_eps=1e-6, hidden_act="silu", torch_dtype="bfloat16", tie_word_embeddings=False)

MIXTRAL = BASE | dict(
    architectures=["MixtralForCausalLM"], model_type="mixtral", intermediate_size=48, num_local_experts=6,
    num_experts_per_tok=2, rms_norm_eps=1e-5, rope_theta=1e6, sliding_window=None, attention_dropout=0.0,
    output_router_logits=False, router_aux_loss_coef=0.02)
# Layer 1 has the dense MLP; layers 0 and 2 are sparse.
QWEN2_MOE = BASE | dict(
    architectures=["Qwen2MoeForCausalLM"], model_type="qwen2_moe", intermediate_size=96, moe_intermediate_size=24,
    shared_expert_intermediate_size=40, num_experts=10, num_experts_per_tok=4, norm_topk_prob=False, decoder_sparse_step=1,
    mlp_only_layers=[1], num_hidden_layers=3, rope_theta=1e6, use_sliding_window=False, sliding_window=64, max_window_layers=3,
    output_router_logits=False, router_aux_loss_coef=0.001)
QWEN3_MOE = BASE | dict(
    architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", intermediate_size=96, moe_intermediate_size=32,
    head_dim=32, num_experts=12, num_experts_per_tok=3, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
    rope_theta=1e6, rope_scaling=None, use_sliding_window=False, sliding_window=None, max_window_layers=3,
    attention_bias=False, output_router_logits=False, router_aux_loss_coef=0.001)
# As ModelOpt writes it: the router and the head are not quantized. Three groups of 16 inputs in down_proj.
QWEN3_MOE_NVFP4 = QWEN3_MOE | dict(
    moe_intermediate_size=48, num_experts=6, num_experts_per_tok=2, vocab_size=264,
    quantization_config=grouped.modelopt() | dict(ignore=["lm_head"] + [f"model.layers.{i}.mlp.gate" for i in range(2)]))
# As llm-compressor writes it: the router and the head are not quantized.
QWEN3_MOE_W8A8 = QWEN3_MOE | dict(
    moe_intermediate_size=64, num_experts=4, num_experts_per_tok=2, vocab_size=264,
    quantization_config=tiny_families.int8("int-quantized", inputs=True) | dict(ignore=["lm_head"] + [f"model.layers.{i}.mlp.gate" for i in range(2)]))
# The second of every two layers is sparse; its weights are those of a softmax over all experts.
GLM4_MOE = BASE | dict(
    architectures=["Glm4MoeForCausalLM"], model_type="glm4_moe", intermediate_size=96, moe_intermediate_size=24, head_dim=32,
    partial_rotary_factor=0.5, rms_norm_eps=1e-5, rope_theta=1e6, rope_scaling=None, attention_bias=True, use_qk_norm=True,
    n_routed_experts=12, n_shared_experts=1, num_experts_per_tok=3, n_group=3, topk_group=2, norm_topk_prob=True,
    routed_scaling_factor=2.5, first_k_dense_replace=1, num_hidden_layers=3, num_nextn_predict_layers=1, attention_dropout=0.0,
    eos_token_id=[258, 259])
GRANITE_MOE = BASE | dict(
    architectures=["GraniteMoeForCausalLM"], model_type="granitemoe", intermediate_size=24, num_local_experts=8,
    num_experts_per_tok=3, rope_theta=10000.0, rope_scaling=None, tie_word_embeddings=True, attention_bias=False,
    attention_dropout=0.0, attention_multiplier=0.1, embedding_multiplier=12.0, residual_multiplier=0.22, logits_scaling=2.0,
    output_router_logits=False, router_aux_loss_coef=0.001, use_cache=True)
# A Mamba-2 mixer in the first and the last layer, attention without a rope between them.
GRANITE4_H = GRANITE_MOE | dict(
    architectures=["GraniteMoeHybridForCausalLM"], model_type="granitemoehybrid", hidden_size=48, intermediate_size=16,
    num_local_experts=3, num_experts_per_tok=2, shared_intermediate_size=24, num_hidden_layers=3, layer_types=["mamba", "attention", "mamba"], vocab_size=264,
    position_embedding_type="nope", mamba_n_heads=8, mamba_d_head=12, mamba_d_state=20, mamba_n_groups=1, mamba_d_conv=4,
    mamba_expand=2, mamba_conv_bias=True, mamba_proj_bias=False, mamba_chunk_size=16)
ERNIE_MOE = BASE | dict(
    architectures=["Ernie4_5_MoeForCausalLM"], model_type="ernie4_5_moe", intermediate_size=96, moe_intermediate_size=24,
    moe_num_experts=10, moe_k=3, moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=1, num_hidden_layers=3,
    moe_layer_interval=1, moe_capacity=[10, 10, 10], moe_use_aux_free=True, moe_gate="topk", rms_norm_eps=1e-5,
    rope_theta=500000.0, tie_word_embeddings=True, use_bias=False, num_nextn_predict_layers=1)
OLMOE = BASE | dict(
    architectures=["OlmoeForCausalLM"], model_type="olmoe", intermediate_size=16, num_experts=8, num_experts_per_tok=3,
    rms_norm_eps=1e-5, rope_theta=10000.0, rope_scaling=None, attention_bias=False, attention_dropout=0.0, clip_qkv=None,
    norm_topk_prob=False, output_router_logits=False, router_aux_loss_coef=0.01, num_key_value_heads=4)
QWEN35_MOE = dict(
    architectures=["Qwen3_5MoeForConditionalGeneration"], model_type="qwen3_5_moe", tie_word_embeddings=False,
    vision_config=tiny_families.QWEN35_VISION | dict(model_type="qwen3_5_moe"),
    text_config={k: v for k, v in tiny_families.QWEN35_TEXT.items() if k != "intermediate_size"} | dict(
        model_type="qwen3_5_moe_text", num_hidden_layers=4, layer_types=["linear_attention"] * 3 + ["full_attention"],
        num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, shared_expert_intermediate_size=40,
        mtp_num_hidden_layers=0))

# Layer 1 has the dense MLP; two value heads share a key head.
QWEN3_NEXT = BASE | dict(
    architectures=["Qwen3NextForCausalLM"], model_type="qwen3_next", num_hidden_layers=3, full_attention_interval=2, head_dim=16,
    partial_rotary_factor=0.25, rope_theta=1e7, rope_scaling=None, intermediate_size=48, num_experts=4, num_experts_per_tok=2,
    moe_intermediate_size=16, shared_expert_intermediate_size=24, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[1],
    linear_conv_kernel_dim=4, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=8,
    vocab_size=264, output_router_logits=False, router_aux_loss_coef=0.001)

# Layer 1 has experts, layer 2 no rope: it sees all positions, the others chunks of 32.
LLAMA4 = dict(
    architectures=["Llama4ForConditionalGeneration"], model_type="llama4", tie_word_embeddings=False, torch_dtype="bfloat16",
    image_token_index=7, boi_token_index=8, eoi_token_index=9,
    vision_config=dict(model_type="llama4_vision_model", hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
                       vision_output_dim=32, image_size=28, patch_size=14),
    text_config=dict(
        model_type="llama4_text", vocab_size=160, hidden_size=64, intermediate_size=16, intermediate_size_mlp=40, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=1024, rms_norm_eps=1e-5, hidden_act="silu",
        bos_token_id=1, eos_token_id=[2, 3], pad_token_id=0, rope_theta=500000.0, attention_bias=False, attention_dropout=0.0,
        rope_scaling=dict(rope_type="llama3", factor=16.0, low_freq_factor=1.0, high_freq_factor=1.0, original_max_position_embeddings=64),
        num_local_experts=4, num_experts_per_tok=1, interleave_moe_layer_step=2, use_qk_norm=True, no_rope_layers=[1, 1, 0],
        attention_chunk_size=32, attn_temperature_tuning=True, floor_scale=8, attn_scale=0.5, tie_word_embeddings=False))
# Latent attention whose value heads, key heads, rope and latent all differ in size. Layer 0 is dense.
DEEPSEEK = {k: v for k, v in BASE.items() if k != "num_key_value_heads"} | dict(
    vocab_size=160, bos_token_id=0, eos_token_id=1, num_key_value_heads=4, max_position_embeddings=256, intermediate_size=48,
    kv_lora_rank=32, qk_nope_head_dim=20, qk_rope_head_dim=16, v_head_dim=24, moe_intermediate_size=16, num_experts_per_tok=3, n_group=3,
    topk_group=2, first_k_dense_replace=1, moe_layer_freq=1, ep_size=1, attention_bias=False, attention_dropout=0.0, rope_theta=10000)
# The epsilon of the norms inside attention is not rms_norm_eps.
DEEPSEEK_V2 = DEEPSEEK | dict(
    architectures=["DeepseekV2ForCausalLM"], model_type="deepseek_v2", q_lora_rank=None, rms_norm_eps=1e-2, n_routed_experts=9,
    n_shared_experts=2, topk_method="group_limited_greedy", scoring_func="softmax", norm_topk_prob=False, routed_scaling_factor=3.0,
    rope_scaling=dict(type="yarn", factor=8, original_max_position_embeddings=32, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=0.707))
DEEPSEEK_V3 = DEEPSEEK | dict(
    architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3", q_lora_rank=32, kv_lora_rank=64, n_routed_experts=9, n_shared_experts=1,
    topk_method="noaux_tc", scoring_func="sigmoid", norm_topk_prob=True, routed_scaling_factor=2.5, num_nextn_predict_layers=1,
    rope_scaling=dict(type="yarn", factor=16, original_max_position_embeddings=16, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0))

# name -> config.json, the class that is run, seed, prompt length
CHECKPOINTS = {
    "tiny-mixtral": dict(config=MIXTRAL, run="MixtralForCausalLM", embed=0.5, seed=41, prompt=64),
    "tiny-qwen2-moe": dict(config=QWEN2_MOE, run="Qwen2MoeForCausalLM", embed=0.5, seed=42, prompt=64),
    "tiny-qwen3-moe": dict(config=QWEN3_MOE, run="Qwen3MoeForCausalLM", embed=0.5, seed=43, prompt=64),
    "tiny-nvfp4-moe": dict(config=QWEN3_MOE_NVFP4, run="Qwen3MoeForCausalLM", embed=0.5, seed=53, prompt=64, steps=16),
    "tiny-w8a8-moe": dict(config=QWEN3_MOE_W8A8, run="Qwen3MoeForCausalLM", embed=0.5, seed=56, prompt=64, steps=16),
    "tiny-glm4-moe": dict(config=GLM4_MOE, run="Glm4MoeForCausalLM", embed=0.5, seed=345, prompt=64),
    "tiny-granite-moe": dict(config=GRANITE_MOE, run="GraniteMoeForCausalLM", embed=0.1, seed=46, prompt=64),
    "tiny-granite4-h": dict(config=GRANITE4_H, run="GraniteMoeHybridForCausalLM", embed=0.1, seed=92, prompt=64, steps=16),
    "tiny-ernie-moe": dict(config=ERNIE_MOE, run="Ernie4_5_MoeForCausalLM", embed=0.4, seed=47, prompt=64),
    "tiny-olmoe": dict(config=OLMOE, run="OlmoeForCausalLM", embed=0.5, seed=50, prompt=64),
    "tiny-qwen3-next": dict(config=QWEN3_NEXT, run="Qwen3NextForCausalLM", embed=0.5, seed=78, prompt=64, steps=16),
    "tiny-llama4": dict(config=LLAMA4, run="Llama4ForCausalLM", embed=0.5, seed=79, prompt=72),
    "tiny-deepseek-v2": dict(config=DEEPSEEK_V2, run="DeepseekV2ForCausalLM", embed=0.5, seed=81, prompt=64, steps=16),
    "tiny-deepseek-v3": dict(config=DEEPSEEK_V3, run="DeepseekV3ForCausalLM", embed=0.5, seed=82, prompt=64, steps=16),
    "tiny-qwen35-moe": dict(config=QWEN35_MOE, run="Qwen3_5MoeForCausalLM", embed=0.5, seed=49, prompt=64),
}


def draw(name, shape, spec, generator):
    """Random weights under which every part of the model matters."""
    if name.endswith("e_score_correction_bias"):
        return 0.1 * torch.randn(shape, generator=generator)
    if name.endswith(("mlp.gate.weight", "router.weight", "shared_expert_gate.weight")):
        return 3 * shape[-1] ** -0.5 * torch.randn(shape, generator=generator)
    if spec["run"] in ("Qwen3_5MoeForCausalLM", "Qwen3NextForCausalLM"):
        spec = spec | dict(run="Qwen3_5ForCausalLM")  # weights of norms around zero
    return tiny_families.draw(name, shape, spec, generator)


def stored(name, weight, spec):
    """The tensors that hold a parameter in the file: names and values."""
    family = spec["config"]["model_type"]
    at, _, last = name.rpartition(".")
    if family in ("granitemoe", "granitemoehybrid"):
        for ours, published in (("experts.gate_up_proj", "input_linear.weight"), ("experts.down_proj", "output_linear.weight"),
                                ("router.weight", "router.layer.weight")):
            if name.endswith(ours):
                return {name[:-len(ours)] + published: weight}
    if family == "ernie4_5_moe":
        name = name.replace("mlp.gate.moe_statics", "mlp.moe_statics")
    if family == "llama4":
        return {"language_model." + name: weight}
    if family == "qwen3_5_moe":
        return {name.replace("model.", "model.language_model.", 1): weight}
    gate, up, down = "gate_proj", "up_proj", "down_proj"
    if family == "mixtral":
        at, name, gate, up, down = (x.replace("mlp.", "block_sparse_moe.") for x in (at, name, "w1", "w3", "w2"))
    if at.endswith("experts") and last == "gate_up_proj":
        half = weight.shape[1] // 2
        return {f"{at}.{e}.{p}.weight": w for e, both in enumerate(weight) for p, w in ((gate, both[:half]), (up, both[half:]))}
    if at.endswith("experts") and last == "down_proj":
        return {f"{at}.{e}.{down}.weight": w for e, w in enumerate(weight)}
    return {name: weight}


def quantized(name, weight, spec):
    """A parameter with the values of its codes, and the tensors that hold them; each expert's matrices have their own scales."""
    values, files = weight.float(), {}
    for where, part in stored(name, values, spec).items():  # views of values
        if spec["config"]["quantization_config"]["quant_method"] == "compressed-tensors":
            part.copy_(tiny_families.store_codes(files, where, part.clone(), spec))
            continue
        tensors, near = grouped.pack_floats(part.clone(), spec["config"]["quantization_config"])
        part.copy_(near)
        files |= {where.removesuffix(".weight") + end: t for end, t in tensors.items()}
    return values, files


def beyond(spec, generator):
    """Tensors of the layers that predict further tokens; transformers does not run them."""
    config, out = spec["config"], {}
    if config["model_type"] == "llama4":
        for name in ("vision_model.class_embedding", "multi_modal_projector.linear_1.weight"):
            out[name] = torch.randn(8, generator=generator)
    if config["model_type"] in ("glm4_moe", "deepseek_v3"):
        layer = f"model.layers.{config['num_hidden_layers']}."
        for name in ("eh_proj.weight", "enorm.weight", "hnorm.weight", "input_layernorm.weight", "mlp.experts.0.up_proj.weight"):
            out[layer + name] = torch.randn(8, generator=generator)
    if config["model_type"] == "qwen3_next":
        for name in ("fc.weight", "layers.0.input_layernorm.weight", "layers.0.mlp.experts.0.up_proj.weight"):
            out["mtp." + name] = torch.randn(8, generator=generator)
    if config["model_type"] == "ernie4_5_moe":
        for name in ("mtp_linear_proj.0.weight", "mtp_block.0.input_layernorm.weight"):
            out["model." + name] = torch.randn(8, generator=generator)
    return out


def build(spec):
    """The model in float32, and the tensors of its file."""
    generator = torch.Generator().manual_seed(spec["seed"])
    cls = getattr(transformers, spec["run"])
    text = spec["config"].get("text_config")
    settings = {"Llama4ForCausalLM": transformers.Llama4TextConfig, "Qwen3_5MoeForCausalLM": transformers.Qwen3_5MoeTextConfig}
    plain = {k: v for k, v in spec["config"].items() if k != "quantization_config"}
    config = settings[spec["run"]](**text) if text else cls.config_class(**plain)
    config.architectures = spec["config"]["architectures"]
    with torch.device("meta"):
        meta = cls(config)
    tensors = dict(meta.named_parameters())
    tensors |= {n: b for n, b in meta.named_buffers() if n.endswith("correction_bias")}
    state, files = {}, {}
    for name, p in tensors.items():
        keep = torch.float32 if name.endswith("correction_bias") else torch.bfloat16
        weight = draw(name, p.shape, spec, generator).to(keep)
        if "quantization_config" in spec["config"] and name.endswith(("proj.weight", "_proj")):
            state[name], parts = quantized(name, weight, spec)
        else:
            state[name], parts = weight.float(), stored(name, weight, spec)
        files |= parts
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
        files.pop("lm_head.weight", None)
    files |= {n: t.to(torch.bfloat16) for n, t in beyond(spec, generator).items()}
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = cls(config).float()
    missing, unexpected = model.load_state_dict(state, strict=False)
    missing = [m for m in missing if "inv_freq" not in m]
    if missing or unexpected:
        raise SystemExit(f"tensors do not fit: {missing} {unexpected}")
    tiny_families.round_inputs(model, spec)
    return model.eval(), {n: t.contiguous() for n, t in files.items()}


def write(root, name):
    """Write the directory of one checkpoint; return its model in float32 and its weight files."""
    spec, directory = CHECKPOINTS[name], os.path.join(root, name)
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    model, files = build(spec)
    tiny_llama.dump(f"{directory}/config.json", spec["config"])
    path = f"{directory}/model.safetensors"
    save_file(files, path, metadata={"format": "pt"})
    os.chmod(path, 0o644)
    return model, [path]


def steps(name):
    return CHECKPOINTS[name].get("steps", STEPS)


def prompt(name):
    spec = CHECKPOINTS[name]
    generator = torch.Generator().manual_seed(100 + spec["seed"])
    return torch.randint(0, spec["config"].get("text_config", spec["config"])["vocab_size"], (spec["prompt"],), generator=generator)
