"""Prints prefill and decode tokens per second of transformers, in bf16 on the CPU, as JSON.

    python torch_rates.py llama1b|smollm2 PROMPTS[,PROMPTS...] OUTPUT

The model has the shape of the file that the other sides run, and random weights.
"""

import json
import os
import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SHAPES = {
    "llama1b": dict(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, head_dim=64, max_position_embeddings=131072, tie_word_embeddings=True,
    ),
    "smollm2": dict(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, head_dim=64, max_position_embeddings=8192, tie_word_embeddings=True,
    ),
}


def build(name):
    """The model, its weights drawn in bf16: without the float32 copy and its time."""
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**SHAPES[name]))
    model = model.to_empty(device="cpu")
    for p in model.parameters():
        p.data.normal_(0, 0.02)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
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


def main(name, prompts, output):
    torch.set_num_threads(os.cpu_count())
    with torch.inference_mode():
        model = build(name)
        prefill(model, 32)
        rates = {f"prefill {n}": prefill(model, int(n)) for n in prompts.split(",")}
        rates["decode"] = decode(model, int(output))
    print(json.dumps(rates))


if __name__ == "__main__":
    main(*sys.argv[1:])
