"""Small GGUF files of the families other than Llama, in llama.cpp's names and block types.

Matrices are random blocks: random bits of every block type in a typical file, under scales of a realistic size. The
reference runs on their dequantized float32 values.
"""

import os
import shutil

import gguf
import numpy as np
import torch
import transformers

import tiny_llama

Q = gguf.GGMLQuantizationType
STEPS = 40
IDS = dict(bos_token_id=256, eos_token_id=258)

# F16 numbers of a block: their offsets, and their share of the wanted deviation under random codes and scales.
HALVES = {
    Q.Q8_0: [(0, 1 / 73.9)], Q.Q5_0: [(0, 1 / 9.2)], Q.Q5_1: [(0, 1 / 9.2), (2, -15.5 / 9.2)], Q.IQ4_NL: [(0, 1 / 70)],
    Q.Q2_K: [(80, 1 / 12), (82, 1.5 / 12)], Q.Q3_K: [(108, 1 / 43)], Q.Q4_K: [(0, 1 / 160), (2, 7.5 / 160)],
    Q.Q5_K: [(0, 1 / 330), (2, 15.5 / 330)], Q.Q6_K: [(208, 1 / (74 * 18.5))],
}

QWEN3 = IDS | dict(
    vocab_size=320, hidden_size=256, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, head_dim=64, max_position_embeddings=1024, rms_norm_eps=1e-6, rope_theta=1000000.0,
    tie_word_embeddings=True, attention_bias=False, hidden_act="silu", use_sliding_window=False)
QWEN2 = IDS | dict(
    vocab_size=320, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=1024, rms_norm_eps=1e-6, rope_theta=1000000.0,
    tie_word_embeddings=False, hidden_act="silu", use_sliding_window=False)
GPT_OSS = IDS | dict(
    vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=8,
    num_key_value_heads=2, head_dim=16, max_position_embeddings=2048, rms_norm_eps=1e-5, rope_theta=150000.0,
    sliding_window=24, attention_bias=True, layer_types=["sliding_attention", "full_attention"] * 2, hidden_act="silu",
    num_local_experts=8, num_experts_per_tok=3, tie_word_embeddings=False,
    rope_scaling=dict(beta_fast=32.0, beta_slow=1.0, factor=32.0, original_max_position_embeddings=64, rope_type="yarn",
                      truncate=False))


def qwen3_kinds(layer, part):
    if layer < 0:
        return Q.Q6_K
    return {
        0: dict(attn_output=Q.Q6_K, ffn_gate=Q.Q5_K, ffn_up=Q.Q5_K, ffn_down=Q.Q6_K),
        1: dict(attn_output=Q.Q2_K, ffn_gate=Q.Q2_K, ffn_up=Q.Q2_K, ffn_down=Q.Q3_K),
        2: dict(attn_output=Q.Q5_1, ffn_gate=Q.IQ4_NL, ffn_up=Q.IQ4_NL, ffn_down=Q.Q8_0),
    }[layer].get(part, [Q.Q4_K, Q.Q3_K, Q.Q5_0][layer])


def qwen2_kinds(layer, part):
    return {"token_embd": Q.Q4_K, "output": Q.Q6_K, "attn_output": Q.Q5_K, "ffn_down": Q.Q6_K}.get(part, Q.Q4_K)


def gpt_oss_kinds(layer, part):
    return Q.MXFP4 if part.endswith("_exps") else Q.F32 if part == "ffn_gate_inp" else Q.Q8_0


# name -> architecture of llama.cpp, pre-tokenizer, transformers' classes, config, block types, seed, prompt length
CHECKPOINTS = {
    "tiny-qwen2-gguf": dict(arch="qwen2", pre="qwen2", model="Qwen2ForCausalLM", config="Qwen2Config", values=QWEN2,
                            kinds=qwen2_kinds, seed=31, prompt=100),
    "tiny-qwen3-gguf": dict(arch="qwen3", pre="qwen2", model="Qwen3ForCausalLM", config="Qwen3Config", values=QWEN3,
                            kinds=qwen3_kinds, seed=32, prompt=100),
    "tiny-gpt-oss-gguf": dict(arch="gpt-oss", pre="gpt-4o", model="GptOssForCausalLM", config="GptOssConfig", values=GPT_OSS,
                              kinds=gpt_oss_kinds, seed=33, prompt=150),
}

# transformers' part of a layer -> llama.cpp's
PARTS = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "self_attn.sinks": "attn_sinks", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.router": "ffn_gate_inp", "mlp.experts.down_proj": "ffn_down_exps",
    "mlp.experts.gate_up_proj": "ffn_gate_up_exps",
}
GLOBAL = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def place(name, spec):
    """Layer (-1: none), llama.cpp's part and kind (weight, bias) of a transformers tensor."""
    kind = "weight"
    for end in (".weight", ".bias", "_bias"):
        if name.endswith(end):
            name, kind = name.removesuffix(end), end[1:]
    if name in GLOBAL:
        return -1, GLOBAL[name], kind
    _, _, layer, part = name.split(".", 3)
    part = PARTS[part]
    if part == "ffn_norm" and spec["arch"] == "gpt-oss":
        part = "post_attention_norm"
    return int(layer), part, kind


def blocks(rng, kind, shape, deviation):
    """Random blocks of a matrix (or a stack of them): the bytes of its rows."""
    elems, size = gguf.GGML_QUANT_SIZES[kind]
    out = rng.integers(0, 256, (*shape[:-1], shape[-1] // elems, size), dtype=np.uint8)
    if kind == Q.MXFP4:
        out[..., 0] = rng.integers(120, 124, out.shape[:-1])
    for at, times in HALVES.get(kind, []):
        spread = 0.85 + 0.1 * (out[..., 0] & 3) if at != HALVES[kind][0][0] or len(HALVES[kind]) == 1 else np.ones(out.shape[:-1])
        half = (times * deviation * spread).astype(np.float16)
        out[..., at:at + 2] = half[..., None].view(np.uint8)
    return out.reshape(*shape[:-1], -1)


def draw(rng, name, shape):
    r = rng.standard_normal(shape).astype(np.float32)
    if "norm" in name:
        return 1 + 0.2 * r
    if "sinks" in name:
        return 0.5 * r
    if "bias" in name:
        return 0.3 * r
    return 3 * shape[-1] ** -0.5 * r  # the router


def build(spec):
    """The model in float32 and the tensors of its file: name -> (array as GGUFWriter takes it, block type)."""
    rng = np.random.default_rng(spec["seed"])
    config = getattr(transformers, spec["config"])(**spec["values"])
    config._attn_implementation = "eager"
    cls = getattr(transformers, spec["model"])
    with torch.device("meta"):
        meta = cls(config)
    state, stored = {}, {}
    for name, p in meta.named_parameters():
        layer, part, kind = place(name, spec)
        shape = tuple(p.shape)
        at = lambda part: (f"blk.{layer}." if layer >= 0 else "") + f"{part}.{kind}"
        if part == "ffn_gate_up_exps":  # [experts, hidden, 2·width], gate and up by turns
            gate_up(rng, spec, layer, at, kind, shape, state, stored, name)
            continue
        if part == "ffn_down_exps" and kind == "weight":
            shape = (shape[0], shape[2], shape[1])
        if len(shape) == 1 or kind == "bias" or part == "ffn_gate_inp":
            x = draw(rng, name, shape)
            stored[at(part)], state[name] = (x, Q.F32), torch.from_numpy(x)
            continue
        deviation = 0.4 if part == "token_embd" else 1.3 * shape[-1] ** -0.5
        quant = spec["kinds"](layer, part)
        raw = blocks(rng, quant, shape, deviation)
        x = gguf.dequantize(raw, quant).astype(np.float32).reshape(shape)
        stored[at(part)] = (raw, quant)
        state[name] = torch.from_numpy(x if part != "ffn_down_exps" else np.ascontiguousarray(x.swapaxes(1, 2)))
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
        stored.pop("output.weight", None)
    model = cls(config).float()
    missing, unexpected = model.load_state_dict(state, strict=False)
    if [m for m in missing if "inv_freq" not in m] or unexpected:
        raise SystemExit(f"tensors do not fit: {missing} {unexpected}")
    return model.eval(), stored


def gate_up(rng, spec, layer, at, kind, shape, state, stored, name):
    both = []
    for part in ("ffn_gate_exps", "ffn_up_exps"):
        if kind == "bias":
            x = draw(rng, name, (shape[0], shape[1] // 2))
            stored[at(part)] = (x, Q.F32)
        else:
            quant, matrix = spec["kinds"](layer, part), (shape[0], shape[2] // 2, shape[1])
            raw = blocks(rng, quant, matrix, 1.3 * matrix[-1] ** -0.5)
            stored[at(part)] = (raw, quant)
            x = gguf.dequantize(raw, quant).astype(np.float32).reshape(matrix).swapaxes(1, 2)
        both.append(x)
    state[name] = torch.from_numpy(np.ascontiguousarray(np.stack(both, -1).reshape(shape)))


def metadata(w, spec):
    v = spec["values"]
    w.add_name(spec["model"])
    w.add_context_length(v["max_position_embeddings"])
    w.add_embedding_length(v["hidden_size"])
    w.add_block_count(v["num_hidden_layers"])
    w.add_feed_forward_length(v["intermediate_size"])
    w.add_head_count(v["num_attention_heads"])
    w.add_head_count_kv(v["num_key_value_heads"])
    w.add_rope_freq_base(v["rope_theta"])
    w.add_layer_norm_rms_eps(v["rms_norm_eps"])
    if "head_dim" in v:
        w.add_key_length(v["head_dim"])
        w.add_value_length(v["head_dim"])
    if "num_local_experts" in v:
        w.add_expert_count(v["num_local_experts"])
        w.add_expert_used_count(v["num_experts_per_tok"])
        w.add_expert_feed_forward_length(v["intermediate_size"])
        w.add_sliding_window(v["sliding_window"])
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(v["rope_scaling"]["factor"])
        w.add_rope_scaling_orig_ctx_len(v["rope_scaling"]["original_max_position_embeddings"])
    tokens, merges, specials = tiny_llama.vocabulary(v["vocab_size"])
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(spec["pre"])
    w.add_token_list(tokens)
    w.add_token_types([gguf.TokenType.CONTROL if i in specials else gguf.TokenType.NORMAL for i in range(len(tokens))])
    w.add_token_merges(merges)
    w.add_bos_token_id(v["bos_token_id"])
    w.add_eos_token_id(v["eos_token_id"])


def write(root, name):
    """Write the file of one checkpoint; return its model in float32 and its weight files."""
    spec, directory = CHECKPOINTS[name], os.path.join(root, name)
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    model, stored = build(spec)
    path = f"{directory}/model.gguf"
    w = gguf.GGUFWriter(path, spec["arch"])
    metadata(w, spec)
    for tensor, (x, kind) in stored.items():
        w.add_tensor(tensor, x, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return model, [path]


def prompt(name):
    spec = CHECKPOINTS[name]
    generator = torch.Generator().manual_seed(100 + spec["seed"])
    return torch.randint(0, spec["values"]["vocab_size"], (spec["prompt"],), generator=generator)
