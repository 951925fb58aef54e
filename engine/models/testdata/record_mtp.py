"""Record the proposals of Qwen3.5's MTP head (multi-token prediction) on a small checkpoint.

    python record_mtp.py

Rewrites tiny-qwen35-mtp/: config.json, and a model.safetensors with the weights of the text model and of the head under
their published names, a prompt (input.ids), the greedy continuation (output.ids) and, for the prompt with each number of
tokens of the continuation, the proposals (output.drafts [steps, 3]) and the logits in which they are the largest
(output.draft_logits [steps, 3, vocab]); float32. transformers has no such head: it is built from
its modules here, following vLLM's qwen3_5_mtp, and every proposal is computed from the whole sequence.
"""

import json
import os

import torch
from safetensors.torch import save_file
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import (
    Qwen3_5DecoderLayer, Qwen3_5ForCausalLM, Qwen3_5RMSNorm)

import golden

HERE = os.path.dirname(os.path.abspath(__file__))
PROMPT, STEPS, DRAFTS = 19, 24, 3
CONFIG = dict(
    model_type="qwen3_5_text", hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, vocab_size=64, max_position_embeddings=128, rms_norm_eps=1e-6, hidden_act="silu",
    layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"], linear_num_key_heads=2,
    linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12, linear_conv_kernel_dim=4, dtype="float32",
    tie_word_embeddings=False,
    rope_parameters=dict(rope_theta=1000.0, rope_type="default", partial_rotary_factor=0.5, mrope_section=[2, 1, 1]))


def draw(name, shape, generator):
    r = torch.randn(shape, generator=generator)
    if name.endswith("linear_attn.norm.weight"):
        return 1 + 0.2 * r
    if "norm" in name:
        return 0.2 * r
    if name.endswith("A_log") or name.endswith("dt_bias"):
        return 0.5 * r
    if "conv1d" in name:
        return 0.6 * r
    return 1.5 * shape[-1] ** -0.5 * r


class Head(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        h = config.hidden_size
        self.fc = torch.nn.Linear(2 * h, h, bias=False)
        self.layers = torch.nn.ModuleList([Qwen3_5DecoderLayer(config, config.layer_types.index("full_attention"))])
        self.norm, self.pre_fc_norm_embedding, self.pre_fc_norm_hidden = (Qwen3_5RMSNorm(h, config.rms_norm_eps) for _ in range(3))

    def enter(self, embedding, hidden):
        return self.fc(torch.cat([self.pre_fc_norm_embedding(embedding), self.pre_fc_norm_hidden(hidden)], -1))

    def run(self, x, rotary):
        n = x.shape[0]
        mask = torch.full((n, n), float("-inf")).triu(1)[None, None]
        angles = rotary(x[None], torch.arange(n)[None, None].expand(3, 1, n))
        return self.norm(self.layers[0](x[None], position_embeddings=angles, attention_mask=mask)[0])[-1]


@torch.no_grad()
def propose(model, head, ids):
    """The token after ids, DRAFTS proposals for the tokens after it, and their logits."""
    embed = model.model.embed_tokens
    hidden = model.model(torch.tensor([ids])).last_hidden_state[0]
    token = model.lm_head(hidden[-1]).argmax().item()
    x, drafts, logits = head.enter(embed(torch.tensor(ids[1:] + [token])), hidden), [], []
    while True:
        last = head.run(x, model.model.rotary_emb)
        logits.append(model.lm_head(last))
        drafts.append(logits[-1].argmax().item())
        if len(drafts) == DRAFTS:
            return token, drafts, torch.stack(logits)
        x = torch.cat([x, head.enter(embed(torch.tensor([drafts[-1]])), last[None])])


@torch.no_grad()
def main():
    golden.setup()
    generator = torch.Generator().manual_seed(36)
    config = Qwen3_5TextConfig(**CONFIG)
    config._attn_implementation = "eager"
    model, head, tensors = Qwen3_5ForCausalLM(config), Head(config), {}
    for prefix, module in (("", model), ("mtp.", head)):
        state = {name: draw(name, w.shape, generator) for name, w in module.state_dict().items()}
        module.load_state_dict(state)
        module.eval()
        tensors |= {prefix + name: w for name, w in state.items()}
    ids = torch.randint(0, 64, (PROMPT,), generator=generator).tolist()
    prompt, output, proposals, logits = list(ids), [], [], []
    for _ in range(STEPS):
        token, drafts, scores = propose(model, head, ids)
        ids.append(token)
        output.append(token)
        proposals.append(drafts)
        logits.append(scores)
    as_ids = lambda x: torch.tensor(x, dtype=torch.float32)
    tensors |= {"input.ids": as_ids(prompt), "output.ids": as_ids(output), "output.drafts": as_ids(proposals),
                "output.draft_logits": torch.stack(logits)}
    out = f"{HERE}/tiny-qwen35-mtp"
    os.makedirs(out, exist_ok=True)
    save_file({k: v.contiguous() for k, v in tensors.items()}, f"{out}/model.safetensors")
    with open(f"{out}/config.json", "w") as f:
        json.dump(CONFIG | dict(architectures=["Qwen3_5ForCausalLM"], mtp_num_hidden_layers=1), f, indent=2)
        f.write("\n")


if __name__ == "__main__":
    main()
