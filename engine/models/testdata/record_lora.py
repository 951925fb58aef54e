"""Record the reference logits of LoRA adapters with PEFT, on small random checkpoints of this folder.

    python record_lora.py [NAME...]

Rewrites lora/NAME/ (the adapter, as PEFT saves it, in bfloat16) and lora/NAME.safetensors (the logits; README.md has
the format). A name begins with that of its checkpoint, up to "@".
"""

import os
import sys

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

import golden

HERE = os.path.dirname(os.path.abspath(__file__))
PROMPT, STEPS = 40, 8


def of_text(*modules):
    """Return the regular expression of modules outside of towers."""
    return rf"^(?!.*(vision|visual|audio)).*\.({'|'.join(modules)})$"


ADAPTERS = {
    # Every linear layer of the blocks.
    "tiny-llama3-tied@all": dict(r=4, lora_alpha=2, target_modules="all-linear"),
    # Ranks and alphas that differ, scaled by the root of the rank; modules without an adapter.
    "tiny-qwen3@patterns": dict(r=8, lora_alpha=12, use_rslora=True, target_modules=["q_proj", "v_proj", "o_proj", "down_proj"],
                                rank_pattern={"v_proj": 4, r".*\.1\.mlp\.down_proj": 2}, alpha_pattern={"layers.0.self_attn.q_proj": 32}),
    # Q, K and V, gate and up in one matrix each.
    "tiny-phi3@fused": dict(r=4, lora_alpha=8, target_modules=["qkv_proj", "gate_up_proj", "o_proj"]),
    # Rows of Q and K rotated in pairs.
    "tiny-glm4@pairs": dict(r=4, lora_alpha=8, target_modules=["q_proj", "k_proj", "down_proj"]),
    # The attention of a mixture of experts.
    "tiny-qwen3-moe@attention": dict(r=4, lora_alpha=8, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]),
    "tiny-gpt-oss@attention": dict(r=4, lora_alpha=8, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]),
    # Layers that reuse keys and values; one matrix with the embeddings of all layers.
    "tiny-gemma4-e@all": dict(r=2, lora_alpha=4, target_modules=of_text("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
                                                                       "per_layer_input_gate", "per_layer_projection", "per_layer_model_projection")),
    # Delta nets: projections of their own, and two matrices divided by key heads.
    "tiny-qwen35@all": dict(r=2, lora_alpha=4, target_modules=of_text("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
                                                                     "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj")),
    # PEFT adapts gate_proj, up_proj and down_proj of this family's experts too, as target_parameters.
    "tiny-qwen3-next@mixers": dict(r=2, lora_alpha=4, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "in_proj_qkvz", "in_proj_ba", "out_proj",
                                                                      "shared_expert_gate"]),
}


def record(name):
    checkpoint = f"{HERE}/{name.split('@')[0]}"
    base = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32, attn_implementation="eager").eval()
    torch.manual_seed(len(name))
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **ADAPTERS[name])).eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            if ".lora_" in key:
                p.copy_((torch.randn_like(p) * (0.3 if ".lora_B." in key else p.shape[1] ** -0.5)).bfloat16().float())
    at = f"{HERE}/lora/{name}"
    model.peft_config["default"].base_model_name_or_path = name.split("@")[0]
    model.save_pretrained(at)
    if os.path.exists(f"{at}/README.md"):
        os.remove(f"{at}/README.md")
    weights = f"{at}/adapter_model.safetensors"
    save_file({k: v.bfloat16().contiguous() for k, v in load_file(weights).items()}, weights)
    os.chmod(weights, 0o644)
    ids = torch.randint(3, base.config.get_text_config().vocab_size, (PROMPT,))
    golden.save(f"{HERE}/lora/{name}.safetensors", golden.record(model.get_base_model(), ids, STEPS), base, [weights])


def main():
    golden.setup()
    for name in sys.argv[1:] or ADAPTERS:
        record(name)


if __name__ == "__main__":
    main()
