"""GGUF files of the llama architecture: read one into transformers with dequantized float32 weights, and write one."""

import json

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

# GGUF name -> transformers name, per layer.
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GLOBAL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def hf_name(name):
    stem = name.removesuffix(".weight")
    if stem in GLOBAL:
        return GLOBAL[stem] + ".weight"
    _, layer, part = stem.split(".")
    return f"model.layers.{layer}.{LAYER[part]}.weight"


def permute(w, heads):
    """transformers' half-split rotary rows -> GGUF's interleaved pairs."""
    return w.reshape(heads, 2, -1, w.shape[-1]).swapaxes(1, 2).reshape(w.shape)


def unpermute(w, heads):
    return w.reshape(heads, -1, 2, w.shape[-1]).swapaxes(1, 2).reshape(w.shape)


def field(reader, key, default=None):
    f = reader.fields.get(key)
    return default if f is None else f.contents()


def read_config(reader):
    get = lambda key, default=None: field(reader, "llama." + key, default)
    heads, hidden = get("attention.head_count"), get("embedding_length")
    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=len(field(reader, "tokenizer.ggml.tokens")),
        hidden_size=hidden,
        intermediate_size=get("feed_forward_length"),
        num_hidden_layers=get("block_count"),
        num_attention_heads=heads,
        num_key_value_heads=get("attention.head_count_kv", heads),
        head_dim=get("attention.key_length", hidden // heads),
        max_position_embeddings=get("context_length"),
        rms_norm_eps=get("attention.layer_norm_rms_epsilon"),
        rope_theta=get("rope.freq_base", 10000.0),
        tie_word_embeddings="output.weight" not in {t.name for t in reader.tensors},
    )


def load(path):
    """LlamaForCausalLM with the file's weights dequantized to float32."""
    reader = gguf.GGUFReader(path)
    config = read_config(reader)
    state = {}
    for t in reader.tensors:
        w = gguf.dequantize(t.data, t.tensor_type).astype(np.float32)
        if ".attn_q." in t.name:
            w = unpermute(w, config.num_attention_heads)
        elif ".attn_k." in t.name:
            w = unpermute(w, config.num_key_value_heads)
        state[hf_name(t.name)] = torch.from_numpy(np.ascontiguousarray(w))
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model = LlamaForCausalLM(config).float().eval()
    model.load_state_dict(state, strict=True)
    return model


def tokenizer(path):
    """The tokenizer that the file describes. transformers' own conversion ignores `tokenizer.ggml.pre`
    and is wrong where a digit follows two or more white spaces, so it is built from the metadata here."""
    reader = gguf.GGUFReader(path)
    kind, pre = field(reader, "tokenizer.ggml.model"), field(reader, "tokenizer.ggml.pre")
    if (kind, pre) != ("gpt2", "smollm"):
        raise SystemExit(f"{path}: tokenizer {kind}/{pre} is not gpt2/smollm")
    tokens, types = field(reader, "tokenizer.ggml.tokens"), field(reader, "tokenizer.ggml.token_type")
    specials = [i for i, t in enumerate(types) if t == gguf.TokenType.CONTROL]
    return Tokenizer.from_str(tokenizer_json(tokens, field(reader, "tokenizer.ggml.merges"), specials))


def tokenizer_json(tokens, merges, specials):
    """tokenizer.json of a byte-level BPE that splits digits one by one (the kind called smollm)."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return json.dumps({
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": tokens[i], **flags} for i in specials],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {t: i for i, t in enumerate(tokens)},
            "merges": [m.split(" ") for m in merges],
        },
    }, ensure_ascii=False, indent=0)


def write(path, config, state, quant, tokens, merges, specials, eos, template):
    """Write `state` (transformers names) as GGUF: matrices in `quant`, embedding and output in Q8_0, norms in F32."""
    w = gguf.GGUFWriter(path, "llama")
    w.add_name("tiny llama")
    w.add_context_length(config.max_position_embeddings)
    w.add_embedding_length(config.hidden_size)
    w.add_block_count(config.num_hidden_layers)
    w.add_feed_forward_length(config.intermediate_size)
    w.add_head_count(config.num_attention_heads)
    w.add_head_count_kv(config.num_key_value_heads)
    w.add_rope_dimension_count(config.head_dim)
    w.add_rope_freq_base(config.rope_parameters["rope_theta"])
    w.add_layer_norm_rms_eps(config.rms_norm_eps)
    w.add_vocab_size(config.vocab_size)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("smollm")
    w.add_token_list(tokens)
    w.add_token_types([gguf.TokenType.CONTROL if i in specials else gguf.TokenType.NORMAL for i in range(len(tokens))])
    w.add_token_merges(merges)
    w.add_bos_token_id(specials[0])
    w.add_eos_token_id(eos)
    w.add_add_bos_token(False)
    w.add_chat_template(template)
    names = {v + ".weight": k + ".weight" for k, v in GLOBAL.items()}
    for i in range(config.num_hidden_layers):
        names |= {f"model.layers.{i}.{v}.weight": f"blk.{i}.{k}.weight" for k, v in LAYER.items()}
    for name, tensor in state.items():
        x, kind = tensor.float().numpy(), quant
        if name.endswith("q_proj.weight"):
            x = permute(x, config.num_attention_heads)
        elif name.endswith("k_proj.weight"):
            x = permute(x, config.num_key_value_heads)
        if x.ndim == 1:
            kind = gguf.GGMLQuantizationType.F32
        elif names[name] in ("token_embd.weight", "output.weight"):
            kind = gguf.GGMLQuantizationType.Q8_0
        w.add_tensor(names[name], gguf.quantize(np.ascontiguousarray(x), kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
