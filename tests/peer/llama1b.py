"""Writes a GGUF file of the shape of Llama-3.2-1B, with random weights in bf16 or Q8_0.

    python llama1b.py OUT [q8_0]

The shape, the rotary scaling and the number of tokens are those of the published
config.json. The vocabulary is synthetic: the 256 bytes, then words of a space and one to
four letters, each a chain of merges from the left, so that any sequence of words survives
decoding and encoding unchanged. Weights have a deviation of 0.02, in bf16 from a normal and in Q8_0
from a uniform distribution: every layer adds about one to the residual stream, and logits stay within a few units.
"""

import itertools
import math
import string
import sys

import gguf
import numpy as np

HIDDEN, LAYERS, FFN, HEADS, KV_HEADS, HEAD_DIM = 2048, 16, 8192, 32, 8, 64
VOCAB, SPECIAL = 128256, 256
THETA, CONTEXT = 500000.0, 131072
ROPE = {"factor": 32.0, "low": 1.0, "high": 4.0, "original": 8192}
SEED, DEVIATION = 1234, 0.02
NAMED = {0: "<|begin_of_text|>", 1: "<|end_of_text|>", 9: "<|eot_id|>"}
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def byte_alphabet():
    """The character that byte-level BPE writes for each byte, in token order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(len(rest))]


def vocabulary():
    """Tokens, their types and the merges; the special ones come last."""
    tokens, merges = byte_alphabet(), []
    for length in range(1, 5):
        for word in itertools.product(string.ascii_lowercase, repeat=length):
            if len(tokens) == VOCAB - SPECIAL:
                break
            head, last = "Ġ" + "".join(word[:-1]), word[-1]
            tokens.append(head + last)
            merges.append(f"{head} {last}")
    types = [gguf.TokenType.NORMAL] * len(tokens) + [gguf.TokenType.CONTROL] * SPECIAL
    tokens += [NAMED.get(i, f"<|reserved_special_token_{i}|>") for i in range(SPECIAL)]
    return tokens, types, merges


def rope_factors():
    """The divisors of the rotary frequencies, as rope type llama3 has them."""
    low, high = ROPE["original"] / ROPE["low"], ROPE["original"] / ROPE["high"]
    out = []
    for i in range(0, HEAD_DIM, 2):
        wave = 2 * math.pi * THETA ** (i / HEAD_DIM)
        if wave < high:
            out.append(1.0)
        elif wave > low:
            out.append(ROPE["factor"])
        else:
            smooth = (ROPE["original"] / wave - ROPE["low"]) / (ROPE["high"] - ROPE["low"])
            out.append(1 / ((1 - smooth) / ROPE["factor"] + smooth))
    return np.array(out, dtype=np.float32)


def bf16(rng, rows, cols):
    """Random weights as the bytes of bf16, rounded to nearest even."""
    bits = (rng.standard_normal((rows, cols), dtype=np.float32) * np.float32(DEVIATION)).view(np.uint32)
    bits += 0x7FFF + ((bits >> 16) & 1)
    return (bits >> 16).astype(np.uint16).view(np.uint8)


def q8_0(rng, rows, cols):
    """Random weights as the bytes of Q8_0: blocks of a scale in f16 and 32 integers from -127 to 127."""
    blocks = np.empty((rows, cols // 32, 34), dtype=np.uint8)
    blocks[:, :, :2] = np.float16(DEVIATION * math.sqrt(12) / 254).reshape(1).view(np.uint8)
    blocks[:, :, 2:] = rng.integers(-127, 128, (rows, cols // 32, 32), dtype=np.int8).view(np.uint8)
    return blocks.reshape(rows, -1)


# Of each form: bytes in a row of 32 weights, GGUF's names, and what makes the weights.
FORMS = {
    "bf16": (64, gguf.GGMLQuantizationType.BF16, gguf.LlamaFileType.MOSTLY_BF16, bf16),
    "q8_0": (34, gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0, q8_0),
}


def shapes():
    """Every matrix by name: rows (outputs), columns (inputs)."""
    yield "token_embd.weight", VOCAB, HIDDEN
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        yield at + "attn_q.weight", HEADS * HEAD_DIM, HIDDEN
        yield at + "attn_k.weight", KV_HEADS * HEAD_DIM, HIDDEN
        yield at + "attn_v.weight", KV_HEADS * HEAD_DIM, HIDDEN
        yield at + "attn_output.weight", HIDDEN, HEADS * HEAD_DIM
        yield at + "ffn_gate.weight", FFN, HIDDEN
        yield at + "ffn_up.weight", FFN, HIDDEN
        yield at + "ffn_down.weight", HIDDEN, FFN


def describe(w, file_type):
    w.add_name("Llama-3.2-1B with random weights")
    w.add_context_length(CONTEXT)
    w.add_embedding_length(HIDDEN)
    w.add_block_count(LAYERS)
    w.add_feed_forward_length(FFN)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_key_length(HEAD_DIM)
    w.add_value_length(HEAD_DIM)
    w.add_rope_dimension_count(HEAD_DIM)
    w.add_rope_freq_base(THETA)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(VOCAB)
    w.add_file_type(file_type)
    tokens, types, merges = vocabulary()
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("llama-bpe")
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges(merges)
    w.add_bos_token_id(VOCAB - SPECIAL)
    w.add_eos_token_id(VOCAB - SPECIAL + 1)
    w.add_add_bos_token(True)
    w.add_chat_template(TEMPLATE)


def main(out, form="bf16"):
    size, tensor_type, file_type, weights = FORMS[form]
    rng, ones = np.random.default_rng(SEED), np.ones(HIDDEN, dtype=np.float32)
    w = gguf.GGUFWriter(out, "llama")
    describe(w, file_type)
    w.add_tensor("rope_freqs.weight", rope_factors())
    w.add_tensor("output_norm.weight", ones)
    for layer in range(LAYERS):
        w.add_tensor(f"blk.{layer}.attn_norm.weight", ones)
        w.add_tensor(f"blk.{layer}.ffn_norm.weight", ones)
    # The matrices are generated again when written, so that only one is in memory at a time.
    for name, rows, cols in shapes():
        row = cols // 32 * size
        w.add_tensor_info(name, (rows, row), np.dtype(np.uint8), rows * row, tensor_type)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    first = 2 + 2 * LAYERS
    for tensor in itertools.islice(list(w.tensors[0].values()), first):
        w.write_tensor_data(tensor.tensor)
    for _, rows, cols in shapes():
        w.write_tensor_data(weights(rng, rows, cols))
    w.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
