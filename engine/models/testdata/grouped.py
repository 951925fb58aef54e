"""Weights of 2, 3, 4 and 8 bits with a scale and a zero point for each group of inputs, as checkpoints store them.

    python grouped.py

rewrites ../../checkpoint/testdata/grouped: one small matrix in each layout, and its values. tiny_families.py uses pack
for whole checkpoints. The layouts, for a matrix of [out, in]:

gptq   qweight [in·bits/32, out]: the codes of a column, bit after bit; qzeros [groups, out·bits/32] likewise along a
       row, minus one in the format gptq (version 1); scales [groups, out]; g_idx [in]: the group of each input
awq    qweight [in, out/8], qzeros [groups, out/8]: eight outputs in a word in the order 0, 2, 4, 6, 1, 3, 5, 7; scales
       [groups, out]
int4   (compressed-tensors, pack-quantized) weight_packed [out, in/8], weight_scale [out, groups], weight_zero_point
       [out/8, groups], codes and zero points plus 8; weight_shape; weight_g_idx [in]
nvfp4  (compressed-tensors, nvfp4-pack-quantized) weight_packed [out, in/2], two E2M1 in a byte, the first in the low half;
       weight_scale [out, in/16], E4M3; weight_global_scale [1], float32, by which scales are divided
modelopt (NVFP4) the same as weight, weight_scale and weight_scale_2 [], with which scales are multiplied
"""

import json
import os
import shutil

import torch
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def gptq(bits, group, sym, order=False, version="gptq"):
    return dict(
        bits=bits, checkpoint_format=version, damp_percent=0.01, desc_act=order, group_size=group, lm_head=False,
        meta=dict(quantizer=["gptqmodel:2.0.0"]), pack_dtype="int32", quant_method="gptq", static_groups=False, sym=sym,
        true_sequential=True)


def awq(group):
    return dict(bits=4, group_size=group, modules_to_not_convert=None, quant_method="awq", version="gemm", zero_point=True)


def int4(group, symmetric, order=None):
    """A quantization_config of compressed-tensors as llm-compressor writes it; group None: channels."""
    weights = dict(
        actorder=order, block_structure=None, dynamic=False, group_size=group, num_bits=4, observer="minmax",
        observer_kwargs={}, strategy="group" if group else "channel", symmetric=symmetric, type="int")
    return dict(
        quant_method="compressed-tensors", format="pack-quantized", quantization_status="compressed",
        global_compression_ratio=None, kv_cache_scheme=None, ignore=["lm_head"],
        config_groups=dict(group_0=dict(targets=["Linear"], input_activations=None, output_activations=None, weights=weights)))


def nvfp4():
    """A quantization_config of compressed-tensors with NVFP4 weights and activations, as llm-compressor writes it."""
    args = dict(actorder=None, block_structure=None, group_size=16, num_bits=4, observer_kwargs={}, strategy="tensor_group",
                symmetric=True, type="float")
    return dict(
        quant_method="compressed-tensors", format="nvfp4-pack-quantized", quantization_status="compressed",
        global_compression_ratio=None, kv_cache_scheme=None, ignore=["lm_head"],
        config_groups=dict(group_0=dict(
            targets=["Linear"], format="nvfp4-pack-quantized", output_activations=None,
            weights=args | dict(dynamic=False, observer="minmax"), input_activations=args | dict(dynamic="local", observer="minmax"))))


def modelopt():
    """A quantization_config of ModelOpt with NVFP4."""
    args = dict(dynamic=False, num_bits=4, type="float", group_size=16)
    return dict(
        quant_method="modelopt", quant_algo="NVFP4", ignore=["lm_head"], producer=dict(name="modelopt", version="0.37.0"),
        config_groups=dict(group_0=dict(targets=["Linear"], weights=args, input_activations=args)))


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def pack_floats(weight, config):
    """pack for NVFP4. The largest number of a matrix becomes 6 times the largest scale, 448."""
    out, cols = weight.shape
    divided = config["quant_method"] == "compressed-tensors"
    most = weight.abs().amax()
    matrix = (6 * 448 / most if divided else most / (6 * 448)).float()
    parts = weight.reshape(out, -1, 16)
    scales = (parts.abs().amax(-1) / 6 * (matrix if divided else 1 / matrix)).to(torch.float8_e4m3fn)
    s = (scales.float() / matrix if divided else scales.float() * matrix).unsqueeze(-1)
    near = ((parts / torch.where(s == 0, 1.0, s)).abs().unsqueeze(-1) - E2M1).abs().argmin(-1)
    codes = (near + 8 * (parts < 0)).reshape(out, cols)
    values = (torch.where(parts < 0, -E2M1[near], E2M1[near]) * s).reshape(out, cols)
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8)
    if divided:
        return {".weight_packed": packed, ".weight_scale": scales, ".weight_global_scale": matrix.reshape(1),
                ".input_global_scale": torch.tensor([1.5])}, values
    return {".weight": packed, ".weight_scale": scales, ".weight_scale_2": matrix, ".input_scale": torch.tensor(0.5)}, values


def floats(config):
    """Whether a quantization_config has 4-bit floats."""
    return config.get("config_groups", {}).get("group_0", {}).get("weights", {}).get("type") == "float"


def bits_of(codes, bits):
    """Codes [..., n] as words [..., n·bits/32], bit after bit."""
    *outer, n = codes.shape
    each = (codes.long().unsqueeze(-1) >> torch.arange(bits)) & 1
    words = (each.reshape(*outer, n * bits // 32, 32) << torch.arange(32)).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def settings(config):
    """bits, group size (None: whole rows), symmetric, order, the smallest zero point."""
    if config["quant_method"] == "compressed-tensors":
        w = config["config_groups"]["group_0"]["weights"]
        return 4, w["group_size"], w["symmetric"], w["actorder"] == "group", 0
    group = config["group_size"] if config["group_size"] > 0 else None
    least = 1 if config.get("checkpoint_format") == "gptq" else 0
    return config["bits"], group, config.get("sym", False), config.get("desc_act", False), least


def pack(weight, config, dtype, seed):
    """The tensors of a matrix by the end of their names, and its values in float32. seed decides the order of inputs."""
    if floats(config):
        return pack_floats(weight, config)
    bits, group, symmetric, order, least = settings(config)
    out, cols = weight.shape
    group = group or cols
    index = torch.arange(cols) // group
    if order:
        index = index[torch.randperm(cols, generator=torch.Generator().manual_seed(seed))]
    q, values = torch.zeros(out, cols, dtype=torch.long), torch.zeros(out, cols)
    scales, zeros = torch.zeros(out, cols // group, dtype=dtype), torch.zeros(out, cols // group, dtype=torch.long)
    most = 2**bits - 1
    for g in range(cols // group):
        part = weight[:, index == g]
        if symmetric:
            scale, zero = 2 * part.abs().amax(1) / most, torch.full((out,), 2 ** (bits - 1))
        else:
            low, high = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
            scale = (high - low) / most
            zero = torch.round(-low / scale).clamp(least, most).long()
        scales[:, g], zeros[:, g] = scale.to(dtype), zero
        s = scales[:, g].float().unsqueeze(1)
        codes = (torch.round(part / s) + zero.unsqueeze(1)).clamp(0, most).long()
        q[:, index == g], values[:, index == g] = codes, s * (codes - zero.unsqueeze(1)).float()
    return named(config, q, scales, zeros, index.to(torch.int32)), values


def named(config, q, scales, zeros, index):
    bits, _, symmetric, order, least = settings(config)
    if config["quant_method"] == "gptq":
        return {".qweight": bits_of(q, bits).t().contiguous(), ".scales": scales.t().contiguous(),
                ".qzeros": bits_of((zeros - least).t(), bits), ".g_idx": index}
    if config["quant_method"] == "awq":
        def eight(x):
            return bits_of(x.reshape(x.shape[0], -1, 8)[..., AWQ_ORDER].flatten(1), 4)
        return {".qweight": eight(q.t()), ".scales": scales.t().contiguous(), ".qzeros": eight(zeros.t())}
    out = {".weight_packed": bits_of(q, 4), ".weight_scale": scales, ".weight_shape": torch.tensor(q.shape)}
    if not symmetric:
        out[".weight_zero_point"] = bits_of(zeros.t(), 4).t().contiguous()
    if order:
        out[".weight_g_idx"] = index
    return out


LAYOUTS = {
    "gptq-2": (gptq(2, 64, False, version="gptq_v2"), torch.float16),
    "gptq-3": (gptq(3, 32, False), torch.bfloat16),
    "gptq-4": (gptq(4, 128, True), torch.float16),
    "gptq-4-rows": (gptq(4, -1, False), torch.float16),
    "gptq-4-order": (gptq(4, 32, False, order=True), torch.float16),
    "gptq-8": (gptq(8, 32, True), torch.float16),
    "awq": (awq(64), torch.float16),
    "int4": (int4(32, True), torch.bfloat16),
    "int4-rows": (int4(None, False, order="weight"), torch.float16),
    "int4-order": (int4(64, False, order="group"), torch.bfloat16),
    "nvfp4": (nvfp4(), None),
    "nvfp4-modelopt": (modelopt(), None),
}


def main():
    root = f"{HERE}/../../checkpoint/testdata/grouped"
    shutil.rmtree(root, ignore_errors=True)
    for seed, (name, (config, dtype)) in enumerate(LAYOUTS.items()):
        generator = torch.Generator().manual_seed(seed)
        weight = torch.randn(32, 128, generator=generator) * torch.rand(32, 1, generator=generator)
        tensors, values = pack(weight, config, dtype, seed)
        os.makedirs(f"{root}/{name}")
        with open(f"{root}/{name}/config.json", "w") as f:
            json.dump(dict(
                architectures=["Qwen2ForCausalLM"], model_type="qwen2", vocab_size=320, hidden_size=96,
                intermediate_size=128, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
                max_position_embeddings=1024, rms_norm_eps=1e-6, quantization_config=config), f, indent=1)
        path = f"{root}/{name}/model.safetensors"
        save_file({"m" + n: t.contiguous() for n, t in tensors.items()} | {"values": values}, path, metadata={"format": "pt"})
        os.chmod(path, 0o644)


if __name__ == "__main__":
    main()
