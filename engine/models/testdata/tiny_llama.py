"""Small random checkpoints of the Llama architecture, each a whole Hugging Face directory with its own quirks."""

import json
import os
import shutil

import gguf
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

import gguf_llama

STEPS = 40

COMMON = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "pretraining_tp": 1,
    "use_cache": True,
    "bos_token_id": 256,
    "eos_token_id": 258,
}

# name -> config.json, storage dtype, scale of the embedding, seed, prompt length.
# The values of a checkpoint use every mantissa bit of its storage dtype.
CHECKPOINTS = {
    # llama3 rope scaling (old spelling), tied embeddings, GQA 4:1, head_dim 32 although hidden/heads is 8.
    "tiny-llama3-tied": dict(
        dtype=torch.float32, embed=0.3, seed=11, prompt=128,
        config=COMMON | dict(
            vocab_size=448, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=8,
            num_key_value_heads=2, head_dim=32, max_position_embeddings=1024, rms_norm_eps=1e-5, rope_theta=500000.0,
            rope_scaling=dict(factor=32.0, high_freq_factor=4.0, low_freq_factor=1.0,
                              original_max_position_embeddings=64, rope_type="llama3"),
            tie_word_embeddings=True, attention_bias=False, mlp_bias=False, torch_dtype="float32")),
    # Untied head, plain rope, MHA with head_dim 64 that config.json does not name, float16 storage.
    "tiny-mha-f16": dict(
        dtype=torch.float16, embed=0.5, seed=12, prompt=96,
        config=COMMON | dict(
            vocab_size=320, hidden_size=128, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=2048, rms_norm_eps=1e-6, rope_theta=10000.0,
            rope_scaling=None, tie_word_embeddings=False, torch_dtype="float16")),
    # Biases on q, k, v, o and on all three MLP matrices, GQA 6:2 (SmolLM2's 3:1), intermediate size 96 (not a multiple
    # of 64), vocabulary 331 (a prime), an epsilon that is as large as the embeddings' mean square.
    "tiny-bias": dict(
        dtype=torch.float32, embed=0.05, seed=13, prompt=100,
        config=COMMON | dict(
            vocab_size=331, hidden_size=96, intermediate_size=96, num_hidden_layers=2, num_attention_heads=6,
            num_key_value_heads=2, head_dim=16, max_position_embeddings=8192, rms_norm_eps=2e-3, rope_theta=100000.0,
            rope_scaling=None, tie_word_embeddings=True, attention_bias=True, mlp_bias=True, torch_dtype="float32")),
    # llama3 rope scaling (transformers 5 spelling), a prompt far beyond original_max_position_embeddings.
    "tiny-llama3-long": dict(
        dtype=torch.bfloat16, embed=0.4, seed=15, prompt=300,
        config=COMMON | dict(
            vocab_size=320, hidden_size=96, intermediate_size=128, num_hidden_layers=3, num_attention_heads=6,
            num_key_value_heads=2, head_dim=32, max_position_embeddings=2048, rms_norm_eps=1e-5,
            rope_parameters=dict(rope_theta=10000.0, rope_type="llama3", factor=8.0, high_freq_factor=4.0,
                                 low_freq_factor=1.0, original_max_position_embeddings=48),
            tie_word_embeddings=True, dtype="bfloat16")),
}

# GGUF twins of tiny-mha-f16: same weights, quantized.
TWINS = {
    "tiny-mha-q8_0": gguf.GGMLQuantizationType.Q8_0,
    "tiny-mha-q4_1": gguf.GGMLQuantizationType.Q4_1,
}
TWIN_OF = "tiny-mha-f16"

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PAIRS = "Ġ t|h e|i n|Ġ a|e r|o n|r e|Ġt he|a t|e n|o r|Ġ s|e s|i s|in g|Ġ w|a n|o u|n d|Ġa nd|Ġ Ġ|ĠĠ ĠĠ".split("|")
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def byte_letters():
    """The printable letter of each byte in byte-level BPE, bytes 0..255 in order."""
    plain = set(range(33, 127)) | set(range(161, 173)) | set(range(174, 256))
    spare = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(spare)) for b in range(256)]


def vocabulary(size):
    """256 bytes, three special tokens, as many merged pairs as fit, and unused special tokens up to size."""
    tokens = byte_letters() + SPECIALS
    merges = PAIRS[: size - len(tokens)]
    tokens += [m.replace(" ", "") for m in merges]
    specials = list(range(256, 259)) + list(range(len(tokens), size))
    tokens += [f"<|unused_{i}|>" for i in range(size - len(tokens))]
    return tokens, merges, specials


def dump(path, value):
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        json.dump(value, f, indent=2, ensure_ascii=False)
        f.write("\n")


def write_text_files(directory, config):
    tokens, merges, specials = vocabulary(config["vocab_size"])
    dump(f"{directory}/config.json", config)
    dump(f"{directory}/generation_config.json", {
        "bos_token_id": config["bos_token_id"], "eos_token_id": config["eos_token_id"],
        "do_sample": True, "temperature": 0.6, "top_p": 0.9,
    })
    with open(f"{directory}/tokenizer.json", "w", encoding="utf-8", newline="\n") as f:
        f.write(gguf_llama.tokenizer_json(tokens, merges, specials) + "\n")
    dump(f"{directory}/tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": SPECIALS[0], "eos_token": SPECIALS[2],
        "clean_up_tokenization_spaces": False, "model_max_length": config["max_position_embeddings"],
        "chat_template": TEMPLATE,
    })


def draw(name, shape, embed, generator):
    """Random weights under which every part of the model matters: gains near 1, rows that keep the scale, real biases."""
    r = torch.randn(shape, generator=generator)
    if name.endswith("norm.weight"):
        return 1 + 0.2 * r
    if name.endswith("bias"):
        return 0.3 * r
    if "embed_tokens" in name:
        return embed * r
    return 1.3 * shape[-1] ** -0.5 * r


def write_weights(directory, spec, config):
    """model.safetensors in the storage dtype."""
    generator = torch.Generator().manual_seed(spec["seed"])
    with torch.device("meta"):
        shapes = {n: p.shape for n, p in LlamaForCausalLM(LlamaConfig(**config)).named_parameters()}
    state = {n: draw(n, s, spec["embed"], generator).to(spec["dtype"]).contiguous() for n, s in shapes.items()}
    save_file(state, f"{directory}/model.safetensors", metadata={"format": "pt"})


def write(root, name):
    """Write the directory of one checkpoint and return its weight files."""
    spec, directory = CHECKPOINTS[name], os.path.join(root, name)
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    write_text_files(directory, spec["config"])
    write_weights(directory, spec, spec["config"])
    return weight_files(directory)


def weight_files(directory):
    return sorted(os.path.join(directory, f) for f in os.listdir(directory)
                  if f.endswith((".safetensors", ".gguf")))


def load(directory):
    model, report = LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32, output_loading_info=True)
    if any(report.values()):
        raise SystemExit(f"{directory}: transformers did not load every tensor: {report}")
    return model.eval()


def write_twin(root, name):
    """Write the GGUF of one quantized twin and return its file."""
    source = load(os.path.join(root, TWIN_OF))
    directory = os.path.join(root, name)
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    path = f"{directory}/model.gguf"
    tokens, merges, specials = vocabulary(source.config.vocab_size)
    gguf_llama.write(path, source.config, source.state_dict(), TWINS[name], tokens, merges, specials,
                     eos=source.config.eos_token_id, template=TEMPLATE)
    return [path]


def prompt(name):
    """Random ids over the whole vocabulary; a twin gets the prompt of its source."""
    spec = CHECKPOINTS[TWIN_OF if name in TWINS else name]
    generator = torch.Generator().manual_seed(100 + spec["seed"])
    return torch.randint(0, spec["config"]["vocab_size"], (spec["prompt"],), generator=generator)
