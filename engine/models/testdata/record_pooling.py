"""Record the results of small random checkpoints of pooling models, computed as their users do.

    python record_pooling.py

Rewrites pooling/*/: whole directories with a golden.json. README.md has the formats.
"""

import json
import os
import shutil

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

import golden
import tiny_llama

HERE = os.path.dirname(os.path.abspath(__file__))
END = "<|endoftext|>"
WORDS = ["yes", "no", "the", "and", "ing"]
TEXTS = ["What is the capital of China?", "the cat and the dog", "no", "A long text, on and on and on: " + "walking and singing, " * 5]

COMMON = dict(vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-6, hidden_act="silu", dtype="bfloat16",
              bos_token_id=None, eos_token_id=256, pad_token_id=256)
QWEN3 = COMMON | dict(model_type="qwen3", head_dim=32, rope_theta=1000000, attention_bias=False, use_sliding_window=False,
                      sliding_window=None, max_window_layers=2)
QWEN2 = COMMON | dict(model_type="qwen2", rope_theta=1000000.0, use_sliding_window=False, sliding_window=None,
                      max_window_layers=2)
LLAMA = COMMON | dict(model_type="llama", rope_theta=10000.0, attention_bias=False, mlp_bias=False)
# A short form of the prompt format that the hub's Qwen3-Reranker expects.
RERANK = ("{%- for m in messages if m.role == 'query' %}<q>{{ m.content }}{% endfor %}"
          "{%- for m in messages if m.role == 'document' %}<d>{{ m.content }}{% endfor %}?")


def modules(pooling, normalize):
    names = ["Transformer", "Pooling"] + (["Normalize"] if normalize else [])
    listed = [dict(idx=i, name=str(i), path="" if i == 0 else f"{i}_{n}", type=f"sentence_transformers.models.{n}")
              for i, n in enumerate(names)]
    modes = ["cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"]
    config = dict(word_embedding_dimension=64, include_prompt=True)
    return listed, config | {f"pooling_mode_{m}": m == pooling for m in modes}


# name -> config.json, class that runs it, pooling, seed
CHECKPOINTS = {
    # Saved as a bare model: tensor names have no prefix.
    "qwen3-embed": dict(config=QWEN3 | dict(architectures=["Qwen3ForCausalLM"], tie_word_embeddings=True), run="Qwen3Model",
                        ends=True, modules=modules("lasttoken", True), seed=51, bare=True),
    "llama-mean": dict(config=LLAMA | dict(architectures=["LlamaModel"], tie_word_embeddings=False, is_matryoshka=True,
                                           matryoshka_dimensions=[16, 32, 64]), run="LlamaModel",
                       modules=modules("mean_tokens", False), seed=52, bare=True),
    "qwen2-classify": dict(config=QWEN2 | dict(architectures=["Qwen2ForSequenceClassification"], tie_word_embeddings=False,
                                               id2label={"0": "bad", "1": "fair", "2": "good"},
                                               label2id={"bad": 0, "fair": 1, "good": 2}),
                           run="Qwen2ForSequenceClassification", seed=53),
    "qwen3-rerank": dict(config=QWEN3 | dict(architectures=["Qwen3ForCausalLM"], tie_word_embeddings=True),
                         run="Qwen3ForCausalLM", seed=54),
}


def tokenizer(ends):
    """Byte-level BPE of 256 bytes, the end of a text and a few words."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab, merges = {c: i for i, c in enumerate(alphabet)}, []
    vocab[END] = 256
    for word in WORDS:
        for n in range(2, len(word) + 1):
            if word[:n] not in vocab:
                vocab[word[:n]] = len(vocab)
                merges.append((word[:n - 1], word[n - 1]))
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.add_special_tokens([END])
    if ends:  # as Qwen3-Embedding's does
        t.post_processor = processors.TemplateProcessing(single=f"$A {END}", pair=f"$A $B {END}", special_tokens=[(END, 256)])
    return t


def draw(name, shape, generator):
    r = torch.randn(shape, generator=generator)
    if "norm" in name:
        return 1 + 0.2 * r
    if name.endswith("bias"):
        return 0.3 * r
    return (0.4 if "embed_tokens" in name else 1.3 * shape[-1] ** -0.5) * r


def build(spec):
    generator = torch.Generator().manual_seed(spec["seed"])
    cls = getattr(transformers, spec["run"])
    config = cls.config_class(**spec["config"])
    if "id2label" in spec["config"]:
        config.id2label = {int(k): v for k, v in spec["config"]["id2label"].items()}
        config.label2id = {v: k for k, v in config.id2label.items()}
    config._attn_implementation = "eager"
    model = cls(config).float().eval()
    stored = {}
    with torch.no_grad():
        for name, p in model.named_parameters():
            w = draw(name, p.shape, generator).to(torch.bfloat16)
            p.copy_(w.float())
            stored[name] = w.contiguous()
    if config.tie_word_embeddings:
        stored.pop("lm_head.weight", None)
    return model, stored


@torch.no_grad()
def results(name, model, ids):
    """The result that the model's users compute for one text of token ids."""
    ids = torch.tensor([ids])
    if name == "qwen3-embed":
        return F.normalize(model(ids).last_hidden_state[:, -1], p=2, dim=1)[0]
    if name == "llama-mean":
        hidden, mask = model(ids).last_hidden_state, torch.ones_like(ids)[..., None].float()
        return ((hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9))[0]
    if name == "qwen2-classify":
        return torch.softmax(model(ids).logits[0].float(), -1)
    logits = model(ids).logits[0, -1]
    pair = torch.stack([logits[VOCAB["no"]], logits[VOCAB["yes"]]])
    return torch.log_softmax(pair, -1)[1:].exp()


VOCAB = tokenizer(False).get_vocab()


def write(name, spec):
    directory = f"{HERE}/pooling/{name}"
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    model, stored = build(spec)
    tiny_llama.dump(f"{directory}/config.json", spec["config"])
    save_file(stored, f"{directory}/model.safetensors", metadata={"format": "pt"})
    os.chmod(f"{directory}/model.safetensors", 0o644)
    t = tokenizer(spec.get("ends", False))
    t.save(f"{directory}/tokenizer.json", pretty=False)
    tiny_llama.dump(f"{directory}/tokenizer_config.json", dict(eos_token=END, pad_token=END, tokenizer_class="PreTrainedTokenizerFast"))
    if "modules" in spec:
        listed, pooling = spec["modules"]
        os.makedirs(f"{directory}/1_Pooling")
        tiny_llama.dump(f"{directory}/modules.json", listed)
        tiny_llama.dump(f"{directory}/1_Pooling/config.json", pooling)
    if name == "qwen3-rerank":
        with open(f"{directory}/score.jinja", "w") as f:
            f.write(RERANK)
        texts = [f"<q>{TEXTS[0]}<d>{d}?" for d in TEXTS]
    else:
        texts = TEXTS
    runs = []
    for text in texts:
        ids = t.encode(text).ids
        runs.append(dict(text=text, ids=ids, values=[round(float(x), 9) for x in results(name, model, ids)]))
    tiny_llama.dump(f"{directory}/golden.json", dict(
        torch=torch.__version__.split("+")[0], transformers=transformers.__version__,
        checkpoint=golden.sha256(f"{directory}/model.safetensors"), runs=runs))
    print(name, sum(p.numel() for p in model.parameters()), runs[0]["values"][:3])


def main():
    golden.setup()
    for name, spec in CHECKPOINTS.items():
        write(name, spec)


if __name__ == "__main__":
    main()
