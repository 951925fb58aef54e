"""Prints prefill and decode tokens per second of transformers, in bf16 on the CPU, as JSON.

    python torch_rates.py MODEL.gguf PROMPTS[,PROMPTS...] OUTPUT

The shape and the weights are those of the file that the other sides run, a llama in bf16.
"""

import json
import os
import struct
import sys
import time

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

# Type codes of GGUF metadata and their struct and numpy formats; 8 is a string, 9 a list.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, LIST = 8, 9
# GGML tensor types in such a file.
TENSORS = {0: torch.float32, 30: torch.bfloat16}


class Reader:
    """The header of a GGUF file: metadata, and the position of each tensor."""

    def __init__(self, path):
        self.data, self.at = np.memmap(path, mode="c"), 8
        if bytes(self.data[:4]) != b"GGUF":
            raise SystemExit(f"{path}: not a GGUF file")
        tensors, entries = self.take("Q"), self.take("Q")
        self.meta = {self.string(): self.value(self.take("I")) for _ in range(entries)}
        self.where = {}
        for _ in range(tensors):
            name = self.string()
            shape = [self.take("Q") for _ in range(self.take("I"))]
            self.where[name] = shape[::-1], self.take("I"), self.take("Q")
        step = self.meta.get("general.alignment", 32)
        self.start = -(-self.at // step) * step

    def take(self, form):
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def string(self):
        size = self.take("Q")
        self.at += size
        return bytes(self.data[self.at - size : self.at]).decode()

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == LIST:
            kind, count = self.take("I"), self.take("Q")
            return [self.value(kind) for _ in range(count)]
        return self.take(SCALARS[kind])

    def tensor(self, name):
        """The named tensor, without a copy."""
        shape, kind, offset = self.where[name]
        if kind not in TENSORS:
            raise SystemExit(f"{name} is of GGML's type {kind}; bf16 and f32 are measured")
        count, dtype = int(np.prod(shape)), TENSORS[kind]
        begin = self.start + offset
        raw = self.data[begin : begin + count * dtype.itemsize]
        return torch.from_numpy(np.asarray(raw)).view(dtype).reshape(shape)


def config(r):
    def of(key, default=None):
        return r.meta.get("llama." + key, default)

    heads = of("attention.head_count")
    return LlamaConfig(
        vocab_size=r.where["token_embd.weight"][0][0], hidden_size=of("embedding_length"), intermediate_size=of("feed_forward_length"),
        num_hidden_layers=of("block_count"), num_attention_heads=heads, num_key_value_heads=of("attention.head_count_kv", heads),
        head_dim=of("attention.key_length", of("embedding_length") // heads), max_position_embeddings=of("context_length"),
        rms_norm_eps=of("attention.layer_norm_rms_epsilon"), rope_theta=of("rope.freq_base", 10000.0),
        tie_word_embeddings="output.weight" not in r.where,
    )


def halves(w, heads):
    """Rows of q or k in transformers' order: in the file, the two halves of a head alternate."""
    return w.reshape(heads, -1, 2, w.shape[1]).transpose(1, 2).reshape(w.shape)


LAYER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def weights(r, c):
    """The name in transformers and the tensor of every weight."""
    yield "model.embed_tokens.weight", r.tensor("token_embd.weight")
    yield "model.norm.weight", r.tensor("output_norm.weight")
    yield "lm_head.weight", r.tensor("token_embd.weight" if c.tie_word_embeddings else "output.weight")
    for i in range(c.num_hidden_layers):
        for theirs, ours in LAYER.items():
            w = r.tensor(f"blk.{i}.{theirs}.weight")
            if theirs in ("attn_q", "attn_k"):
                w = halves(w, c.num_attention_heads if theirs == "attn_q" else c.num_key_value_heads)
            yield f"model.layers.{i}.{ours}.weight", w


def load(path):
    """The model of a file, in bf16."""
    r = Reader(path)
    c = config(r)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        model = LlamaForCausalLM(c)
    state = {name: w.to(torch.bfloat16, copy=True) for name, w in weights(r, c) if not (c.tie_word_embeddings and name == "lm_head.weight")}
    model.load_state_dict(state, strict=False, assign=True)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
    if "rope_freqs.weight" in r.where:  # the scaling of Llama 3, as the file has it
        model.model.rotary_emb.inv_freq /= r.tensor("rope_freqs.weight")
    missing = [n for n, p in model.named_parameters() if p.is_meta]
    if missing:
        raise SystemExit(f"{path} lacks {missing[0]}")
    return model.eval()


def prefill(model, n):
    ids = torch.randint(0, model.config.vocab_size, (1, n))
    start = time.perf_counter()
    model(ids, use_cache=True, logits_to_keep=1)
    return n / (time.perf_counter() - start)


def decode(model, n):
    out = model(torch.randint(0, model.config.vocab_size, (1, 1)), use_cache=True)
    start = time.perf_counter()
    for _ in range(n):
        out = model(out.logits[:, -1:].argmax(-1), past_key_values=out.past_key_values, use_cache=True)
    return n / (time.perf_counter() - start)


def main(path, prompts, output):
    torch.set_num_threads(os.cpu_count())
    with torch.inference_mode():
        model = load(path)
        prefill(model, 32)
        rates = {f"prefill {n}": prefill(model, int(n)) for n in prompts.split(",")}
        rates["decode"] = decode(model, int(output))
    print(json.dumps(rates))


if __name__ == "__main__":
    main(*sys.argv[1:])
