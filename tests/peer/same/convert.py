"""Small random models of each family as GGUF files, made by llama.cpp's own converter and quantizer.

    python convert.py LLAMA_CPP_SOURCES LLAMA_QUANTIZE SAME OUTPUT [FAMILY...]

The checkpoints are those of engine/models/testdata with every matrix 256 columns wide or a multiple of it, as
blocks of 256 weights need, unless published models are narrower. The environment variable TYPES names the block types (default: all). Their tokenizer
is a small byte-level BPE. SAME, built from same.cpp, runs each file greedily, and its weights in float32 over the same tokens. A file that is there is
left alone. What llama.cpp refuses is written to OUTPUT/refused.txt, one line each.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

sources, quantizer, same, output = sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])
TESTDATA = Path(__file__).resolve().parents[3] / "engine/models/testdata"
sys.path[:0] = [sources, sources + "/gguf-py", str(TESTDATA)]

import gguf  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
import tiny_families  # noqa: E402
import tiny_llama  # noqa: E402
import tiny_moe  # noqa: E402

import conversion  # noqa: E402
from conversion.base import ModelBase, ModelType, TextModel, get_model_architecture  # noqa: E402

PLAIN = {"F32": gguf.LlamaFileType.ALL_F32, "F16": gguf.LlamaFileType.MOSTLY_F16, "BF16": gguf.LlamaFileType.MOSTLY_BF16}
BLOCKS = ("Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K_S Q4_K_S Q5_K_S Q6_K IQ4_NL IQ4_XS IQ3_S IQ3_XXS IQ2_S IQ2_XS IQ2_XXS "
          "IQ1_M IQ1_S TQ1_0 TQ2_0").split()
PROMPT, STEPS, VOCABULARY = 72, 64, 320
MIXED = ["Q4_K_M", "IQ2_M", "MXFP4_MOE"]
TYPES = os.environ.get("TYPES", "").split() or [*BLOCKS, *MIXED]

LLAMA = dict(
    architectures=["LlamaForCausalLM"], model_type="llama", bos_token_id=256, eos_token_id=258, vocab_size=320, hidden_size=256,
    intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024,
    rms_norm_eps=1e-5, rope_theta=500000.0, hidden_act="silu", torch_dtype="bfloat16", tie_word_embeddings=False,
    rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64))
LINEAR = {k: v for k, v in LLAMA.items() if k != "rope_scaling"} | dict(rope_theta=10000.0)
DEEPSEEK = tiny_moe.DEEPSEEK_V2 | dict(topk_method="greedy", n_group=1, topk_group=1)
QWEN3 = tiny_families.CHECKPOINTS["tiny-qwen3"]["config"] | dict(rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64))


def long_rope(original, pairs=24):
    """Phi-4-mini: 48 of 64 dimensions of a head are rotated; factors of long texts apply beyond the original length."""
    return tiny_families.CHECKPOINTS["tiny-phi3"]["config"] | dict(
        head_dim=64, max_position_embeddings=4 * original, original_max_position_embeddings=original, num_key_value_heads=2,
        rope_scaling=dict(type="longrope", short_factor=[1 + i / 50 for i in range(pairs)], long_factor=[1 + i / 3 for i in range(pairs)]))


# Rows that the goldens do not have. "stored" writes the tensors as another architecture names them.
FURTHER = {
    "tiny-llama3": dict(config=LLAMA, run="LlamaForCausalLM", embed=0.5, seed=81),
    "tiny-llama-linear": dict(config=LINEAR | dict(rope_scaling=dict(rope_type="linear", factor=2.0)), run="LlamaForCausalLM", embed=0.5, seed=82),
    "tiny-nemo": dict(config=LINEAR | dict(architectures=["MistralForCausalLM"], model_type="mistral", head_dim=128, sliding_window=None, rope_theta=1e6),
                      run="MistralForCausalLM", embed=0.5, seed=83),
    "tiny-qwen3-yarn": dict(config=QWEN3, run="Qwen3ForCausalLM", embed=0.4, seed=84),
    "tiny-phi4-mini": dict(config=long_rope(4096), run="Phi3ForCausalLM", embed=0.4, seed=86),
    "tiny-phi4-mini-long": dict(config=long_rope(64), run="Phi3ForCausalLM", embed=0.4, seed=87),
    "tiny-internlm2": dict(config=LINEAR | dict(architectures=["InternLM2ForCausalLM"], model_type="internlm2"), run="LlamaForCausalLM",
                           settings="LlamaConfig", embed=0.5, seed=88, stored="internlm2"),
    "tiny-ministral": dict(config=LINEAR | dict(architectures=["MinistralForCausalLM"], model_type="ministral", head_dim=64, sliding_window=None),
                           run="MistralForCausalLM", settings="MistralConfig", embed=0.5, seed=89),
    # Its converter writes an epsilon of 1e-5 and a base of 10000, whatever the config says.
    "tiny-glm": dict(config=tiny_families.CHECKPOINTS["tiny-glm4"]["config"] | dict(architectures=["GlmForCausalLM"], model_type="glm", rms_norm_eps=1e-5, rope_theta=10000.0),
                     run="GlmForCausalLM", embed=0.5, seed=90),
}
# llama.cpp reads queries without a latent from models of 26 or 27 layers. Its groups of experts are those of V3; the published V2 has others.
FURTHER_MOE = {
    "tiny-deepseek-v2": dict(config=DEEPSEEK, run="DeepseekV2ForCausalLM", embed=0.5, seed=81),
    "tiny-deepseek-v2-lite": dict(config=DEEPSEEK | dict(num_hidden_layers=26, first_k_dense_replace=24, n_routed_experts=6),
                                  run="DeepseekV2ForCausalLM", embed=0.5, seed=91),
    "tiny-kimi-k2": dict(config=tiny_moe.DEEPSEEK_V3 | dict(n_group=1, topk_group=1, n_routed_experts=12), run="DeepseekV3ForCausalLM", embed=0.5, seed=92),
    "tiny-llama4-long": dict(config=tiny_moe.LLAMA4, run="Llama4ForCausalLM", embed=0.5, seed=93),
}
INTERNLM2 = {"input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm", "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1",
             "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2", "embed_tokens": "tok_embeddings", "lm_head": "output"}

# Sizes of the wide checkpoints, where a config has the key; a value for one model_type takes precedence.
SIZES = dict(
    vocab_size=VOCABULARY, vocab_size_per_layer_input=VOCABULARY, hidden_size=256, intermediate_size=256, moe_intermediate_size=256, shared_expert_intermediate_size=256, shared_intermediate_size=256, intermediate_size_mlp=256, mamba_d_head=64, head_dim=64,
    global_head_dim=128, linear_key_head_dim=64, linear_value_head_dim=64, linear_num_value_heads=4)
# What a family needs further: sizes that a width of 256 allows, and values that the converter accepts alone.
OF_TYPE = {
    "qwen2": dict(num_attention_heads=4), "qwen2_moe": dict(mlp_only_layers=[]), "cohere2": dict(rotary_pct=1.0),
    "cohere": dict(use_qk_norm=False),  # llama.cpp reads such norms from 64 layers on
    "gpt_oss": dict(rope_theta=1048582.01, initial_context_length=6434, max_position_embeddings=32768),
    "phi3": dict(sliding_window=512),  # llama.cpp runs Phi-3 without its window
    "hunyuan_v1_dense": dict(max_position_embeddings=32768), "ernie4_5": dict(use_bias=False),
    # The converter makes the width of shared experts of intermediate_size, over the K/V heads.
    "ernie4_5_moe": dict(intermediate_size=1024, moe_layer_end_index=2),
    "qwen3_next": dict(mlp_only_layers=[]),  # llama.cpp has experts in every layer
    # The parts of a head are as wide as in published models, half in V2-Lite. Files have one epsilon for all norms, and one mscale.
    "deepseek_v2": dict(q_lora_rank=None, kv_lora_rank=256, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64, rms_norm_eps=1e-6),
    "deepseek_v3": dict(q_lora_rank=256, kv_lora_rank=256, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128),
    # llama.cpp has these numbers for all models.
    "llama4_text": dict(num_hidden_layers=4, no_rope_layers=[1, 1, 1, 0], attention_chunk_size=8192, floor_scale=8192, attn_scale=0.1),
}

BEFORE_TYPE = {"phi3": dict(original_max_position_embeddings=512)}  # where a config lacks it

# llama.cpp rounds the ends of YaRN's ramp outwards, with beta 32 and 1, and ignores attention_factor. The ends of
# gpt-oss, which transformers does not round, are whole here; the factor of OLMo 3 is that which both derive.
ROPE_OF_TYPE = {
    "gpt_oss": dict(original_max_position_embeddings=6434),
    "olmo3": dict(attention_factor=0.1 * math.log(8) + 1),
    "deepseek_v2": dict(mscale=0.707),
}


OF_NAME = {
    # llama.cpp has layers that reuse keys and values take those of the last two that have their own, one of each type.
    "tiny-gemma4-e": dict(layer_types=["sliding_attention"] * 2 + ["full_attention", "sliding_attention", "full_attention"]),
    "tiny-deepseek-v2": dict(q_lora_rank=256, qk_nope_head_dim=256),
    "tiny-llama4-long": dict(num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=16384),
}
# A chunk of Llama 4 has 8192 tokens, after which queries get their temperature: the prompt is longer, and the files are few.
PROMPTS = {"tiny-llama4-long": 8200}
TYPES_OF = {"tiny-llama4-long": ["Q8_0"]}
# vapp reads no GGUF files with Mamba-2 layers.
LEFT_OUT = {"tiny-granite4-h"}


def widened(config, further):
    """The config with its matrices a multiple of 256 wide, and without layers that predict further tokens."""
    if "text_config" in config:
        out = config | dict(text_config=widened(config["text_config"], further))
        out.pop("vision_config", None)
        return out
    out = BEFORE_TYPE.get(config["model_type"], {}) | config | {k: v for k, v in SIZES.items() if k in config} | OF_TYPE.get(config["model_type"], {}) | further
    for key in ("num_nextn_predict_layers", "mtp_num_hidden_layers"):
        if key in out:
            out[key] = 0
    if config["model_type"] in ROPE_OF_TYPE:
        out["rope_scaling"] = config["rope_scaling"] | ROPE_OF_TYPE[config["model_type"]]
    rope = out.get("rope_parameters", {})
    if "mrope_section" in rope:
        out["rope_parameters"] = rope | dict(mrope_section=[4, 2, 2])
    return out


def checkpoints():
    """Every family that the converter may know: name -> the module that writes it, its row."""
    rows = {n: (tiny_families, s) for n, s in tiny_families.CHECKPOINTS.items() if "quantization_config" not in s["config"] or n == "tiny-gpt-oss"}
    rows |= {n: (tiny_moe, s) for n, s in tiny_moe.CHECKPOINTS.items() if "quantization_config" not in s["config"]}
    rows |= {n: (tiny_families, s) for n, s in FURTHER.items()}
    rows |= {n: (tiny_moe, s) for n, s in FURTHER_MOE.items()}
    return {n: r for n, r in rows.items() if n not in LEFT_OUT}


def write_checkpoint(name, where):
    module, spec = checkpoints()[name]
    module.CHECKPOINTS[name] = spec | dict(config=widened(spec["config"], OF_NAME.get(name, {})))
    tiny_moe.beyond = lambda _spec, _generator: {}
    module.write(str(where), name)
    config = module.CHECKPOINTS[name]["config"]
    if spec.get("stored") == "internlm2":
        fuse_internlm2(where / name / "model.safetensors", config)
    words = {str(i): i for i in range(config.get("text_config", config)["vocab_size"])}  # some converters count them
    (where / name / "tokenizer.json").write_text(json.dumps(dict(model=dict(vocab=words), added_tokens=[])), encoding="utf-8")
    return where / name


def fuse_internlm2(path, config):
    """Rewrites Llama's tensors as InternLM 2 stores them: its names, and Q, K and V by group of heads in one matrix."""
    tensors = load_file(path)
    groups, width = config["num_key_value_heads"], config["hidden_size"]
    for layer in range(config["num_hidden_layers"]):
        of = f"model.layers.{layer}."
        q, k, v = (tensors.pop(f"{of}self_attn.{x}_proj.weight").view(groups, -1, width) for x in "qkv")
        tensors[of + "attention.wqkv.weight"] = torch.cat((q, k, v), 1).reshape(-1, width).contiguous()
    for ours, theirs in INTERNLM2.items():
        tensors = {n.replace(ours, theirs): t for n, t in tensors.items()}
    save_file(tensors, path, metadata={"format": "pt"})


def convert(directory, kind, path):
    """One GGUF file of a checkpoint, with a tokenizer for its 320 tokens."""
    hparams = ModelBase.load_hparams(directory, False)
    cls = conversion.get_model_class(get_model_architecture(hparams, ModelType.TEXT))

    def vocabulary(self):
        letters = tiny_llama.byte_letters()
        merges = [f"Ġ {c}" for c in "etaoinshrdlucm"]
        merges += ("t h,h e,i n,e r,a n,r e,o n,a t,e n,n d,t i,e s,o r,t e,o f,e d,i s,i t,a l,a r,s t,t o,n t,in g,an d,"
                   "Ġt he,Ġa nd,Ġo f,Ġt o,Ġi n,Ġi s,in t,er s,e l,l o,l e,v e,m e,c o,d e").split(",")
        tokens = letters + [m.replace(" ", "") for m in merges]
        kinds = [gguf.TokenType.NORMAL] * len(tokens) + [gguf.TokenType.CONTROL] * (VOCABULARY - len(tokens))
        tokens += [f"<|{i}|>" for i in range(len(tokens), VOCABULARY)]
        w = self.gguf_writer
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("gpt-2")
        w.add_token_list(tokens)
        w.add_token_types(kinds)
        w.add_token_merges(merges)
        w.add_bos_token_id(VOCABULARY - 2)
        w.add_eos_token_id(VOCABULARY - 1)

    plain = type(cls.__name__, (cls,), dict(set_vocab=vocabulary, model_arch=cls.model_arch, no_mtp=True))
    with torch.inference_mode():
        model = plain(directory, PLAIN[kind], path, model_name="random")
        if hasattr(model, "impl"):  # Mistral 3's converter passes everything on to another
            model.impl.set_vocab = types.MethodType(vocabulary, model.impl)
        model.write()


def imatrix(source, path):
    """An importance matrix with a random positive weight for each column of each matrix."""
    random = np.random.default_rng(7)
    writer = gguf.GGUFWriter(path, "imatrix")
    writer.add_type("imatrix")
    writer.add_array("imatrix.datasets", ["random"])
    writer.add_uint32("imatrix.chunk_count", 1)
    writer.add_uint32("imatrix.chunk_size", 512)
    for t in gguf.GGUFReader(source).tensors:
        if len(t.shape) < 2:
            continue
        columns, matrices = int(t.shape[0]), int(t.shape[2]) if len(t.shape) > 2 else 1
        writer.add_tensor(t.name + ".in_sum2", random.uniform(0.5, 2, (matrices, columns)).astype(np.float32))
        writer.add_tensor(t.name + ".counts", np.ones((matrices, 1), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def refused(text):
    with open(output / "refused.txt", "a", encoding="utf-8") as f:
        f.write(text + "\n")


def converted(name):
    """Makes the plain files of a family; returns whether they are there."""
    files = {kind: output / f"{name}.{kind}.gguf" for kind in PLAIN}
    if all(f.exists() for f in files.values()):
        return True
    scratch = output / "checkpoints"
    scratch.mkdir(exist_ok=True)
    try:
        directory = write_checkpoint(name, scratch)
        for kind, path in files.items():
            convert(directory, kind, path)
    except Exception as e:  # noqa: BLE001 what the converter refuses is a row of the table
        refused(f"{name}: the converter: {type(e).__name__}: {e}".replace("\n", " "))
        for path in files.values():
            path.unlink(missing_ok=True)
        return False
    shutil.rmtree(directory)
    return True


def quantize(name):
    """Makes the quantized files of a family."""
    source, weights = output / f"{name}.F32.gguf", output / f"{name}.imatrix"
    for kind in TYPES_OF.get(name, TYPES):
        path = output / f"{name}.{kind}.gguf"
        if path.exists():
            continue
        if not weights.exists():
            imatrix(source, weights)
        pure = ["--pure"] if kind in BLOCKS else []
        new = output / ".new.gguf"
        done = subprocess.run([quantizer, *pure, "--allow-requantize", "--imatrix", str(weights), str(source), str(new), kind, "1"],
                              capture_output=True, text=True, errors="replace", check=False)
        if done.returncode == 0:
            new.rename(path)
            continue
        new.unlink(missing_ok=True)
        said = [x for x in (done.stdout + done.stderr).splitlines() if "fail" in x or "error" in x or "ASSERT" in x]
        refused(f"{name} {kind}: the quantizer: {(said or ['exit ' + str(done.returncode)])[-1].strip()}")


def run(name):
    """Runs every file of a family with llama.cpp."""
    for path in sorted(output.glob(f"{name}.*.gguf")):
        recorded = path.with_suffix(".logits")
        if recorded.exists():
            continue
        plain, new = output / ".float32.gguf", output / ".new.logits"
        done = subprocess.run([quantizer, "--allow-requantize", str(path), str(plain), "F32", "1"], capture_output=True, check=False)
        if done.returncode:
            refused(f"{path.stem}: the quantizer makes no float32 of it")
            continue
        first = output / ".first.logits"
        for of, to, given in ((path, first, ""), (plain, path.with_suffix(".float32.logits"), first)):
            done = subprocess.run([same], input=f"logits {of} {PROMPTS.get(name, PROMPT)} {STEPS} {new} {given}\n", capture_output=True, text=True, errors="replace", check=False)
            if done.stdout.strip() != "ok":
                refused(f"{path.stem}: llama.cpp: {(done.stdout + done.stderr).strip()}".replace("\n", " ")[:300])
                break
            new.rename(to)
        else:
            first.rename(recorded)
        plain.unlink(missing_ok=True)


def main():
    output.mkdir(parents=True, exist_ok=True)
    (output / "refused.txt").unlink(missing_ok=True)
    names = [n for n in sys.argv[5:] or checkpoints() if converted(n)]
    for name in names:
        run(name)
    for name in names:
        quantize(name)
        run(name)
        print(name, len(list(output.glob(f"{name}.*.float32.logits"))), "files", flush=True)


if __name__ == "__main__":
    main()
