"""Small random checkpoints of the decoders that have a recipe: one row of quirks for each family.

A row is what its config.json says besides BASE, plus, after a bar:
  run     the transformers class, if config.json names another one (files of multimodal models)
  settings  the configuration class, if it is not that of the class that is run
  prefix  of the decoder's tensors in the file, if it is not "model."
  outer   the model_type around the text_config, if it is not that of the text model without "_text"
  embed   the spread of embeddings: with a tied head it decides about that of the logits
A window is 24 positions; 72 prompt tokens pass it. Sizes differ from each other wherever a family lets them.
"""

import grouped

BASE = dict(
    vocab_size=160, hidden_size=64, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu",
    tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0, torch_dtype="bfloat16")
WINDOW = 24
GEMMA = dict(hidden_activation="gelu_pytorch_tanh", hidden_act="gelu_pytorch_tanh", head_dim=32, tie_word_embeddings=True,
             query_pre_attn_scalar=24, sliding_window=WINDOW)
GRANITE4 = dict(
    embedding_multiplier=6.0, residual_multiplier=0.3, attention_multiplier=0.4, logits_scaling=3.0, tie_word_embeddings=True,
    attention_bias=False, position_embedding_type="rope", shared_intermediate_size=80, intermediate_size=96, num_local_experts=0,
    num_experts_per_tok=0, mamba_d_conv=4, mamba_d_head=16, mamba_d_state=8, mamba_expand=2, mamba_n_groups=1, mamba_n_heads=8)

# name -> architecture, model_type, quirks | how it is built
FAMILIES = {
    "tiny-mistral": ("MistralForCausalLM", "mistral", dict(sliding_window=WINDOW, head_dim=32, rope_theta=1000000.0), {}),
    "tiny-gemma2": ("Gemma2ForCausalLM", "gemma2", GEMMA | dict(attn_logit_softcapping=3.0, final_logit_softcapping=4.0),
                    dict(embed=0.15)),
    "tiny-gemma3": ("Gemma3ForConditionalGeneration", "gemma3_text",
                    GEMMA | dict(num_hidden_layers=3, sliding_window_pattern=3, rope_local_base_freq=10000.0, rope_theta=1000000.0,
                                 rope_scaling=dict(factor=8.0, rope_type="linear")),
                    dict(run="Gemma3ForCausalLM", prefix="language_model.model.", embed=0.15)),
    "tiny-phi3": ("Phi3ForCausalLM", "phi3", dict(partial_rotary_factor=0.75, head_dim=16, tie_word_embeddings=True, sliding_window=WINDOW),
                  dict(embed=0.4)),
    "tiny-granite": ("GraniteForCausalLM", "granite",
                     dict(rms_norm_eps=1e-2, embedding_multiplier=6.0, residual_multiplier=0.3, attention_multiplier=0.4, logits_scaling=3.0,
                          attention_bias=True, mlp_bias=True, tie_word_embeddings=True), dict(embed=0.2)),
    "tiny-smollm3": ("SmolLM3ForCausalLM", "smollm3",
                     dict(num_hidden_layers=3, no_rope_layer_interval=2, no_rope_layers=[1, 0, 1], tie_word_embeddings=True), dict(embed=0.4)),
    "tiny-glm4": ("Glm4ForCausalLM", "glm4", dict(attention_bias=True, partial_rotary_factor=0.5, head_dim=32), {}),
    "tiny-cohere2": ("Cohere2ForCausalLM", "cohere2",
                     dict(num_hidden_layers=3, sliding_window=WINDOW, sliding_window_pattern=3, layer_norm_eps=1e-5, rms_norm_eps=None,
                          logit_scale=0.4, tie_word_embeddings=True), dict(embed=0.5)),
    "tiny-ernie": ("Ernie4_5ForCausalLM", "ernie4_5", dict(use_bias=True, head_dim=32, rope_theta=500000.0, tie_word_embeddings=True),
                   dict(embed=0.4)),
    "tiny-internlm3": ("InternLM3ForCausalLM", "internlm3", dict(qkv_bias=True, bias=True, head_dim=32),
                       dict(run="LlamaForCausalLM", settings="InternLM3Config")),
    "tiny-olmo2": ("Olmo2ForCausalLM", "olmo2", dict(rope_theta=500000.0), {}),
    "tiny-olmo3": ("Olmo3ForCausalLM", "olmo3",
                   dict(num_hidden_layers=4, intermediate_size=48, sliding_window=WINDOW, rope_theta=500000.0,
                        rope_scaling=dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=64, attention_factor=1.2,
                                          beta_fast=32.0, beta_slow=1.0)), {}),
    "tiny-hunyuan": ("HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense",
                     dict(head_dim=32, use_qk_norm=True, tie_word_embeddings=True, rope_scaling=dict(type="dynamic", alpha=50.0, factor=1.0)),
                     dict(embed=0.4)),
    "tiny-cohere": ("CohereForCausalLM", "cohere",
                    dict(layer_norm_eps=1e-5, rms_norm_eps=None, logit_scale=0.4, tie_word_embeddings=True, use_qk_norm=True), dict(embed=0.5)),
    "tiny-ministral3": ("Mistral3ForConditionalGeneration", "ministral3",
                        dict(head_dim=32, rope_theta=None,
                             rope_parameters=dict(rope_type="yarn", type="yarn", rope_theta=1000000.0, factor=16.0, beta_fast=32.0,
                                                  beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3,
                                                  original_max_position_embeddings=16)),
                        dict(run="Ministral3ForCausalLM", prefix="language_model.model.", outer="mistral3", seed=73)),
    "tiny-glm4-awq": ("Glm4ForCausalLM", "glm4",
                      dict(attention_bias=True, partial_rotary_factor=0.5, head_dim=32, intermediate_size=64, torch_dtype="float16",
                           quantization_config=grouped.awq(32)), dict(seed=90)),
    "tiny-gemma": ("GemmaForCausalLM", "gemma", dict(hidden_act="gelu", head_dim=32, num_key_value_heads=1, tie_word_embeddings=True),
                   dict(embed=0.15, seed=85)),
    "tiny-granite4": ("GraniteMoeHybridForCausalLM", "granitemoehybrid", GRANITE4 | dict(layer_types=["attention"] * 2), dict(embed=0.2, seed=91)),
}


def spec(index, name):
    """The row of tiny_families.CHECKPOINTS for a family."""
    architecture, model_type, quirks, how = FAMILIES[name]
    config = BASE | quirks
    config = {k: v for k, v in config.items() if v is not None}
    if "prefix" in how:
        ids = {k: config.pop(k) for k in ("torch_dtype", "tie_word_embeddings")}
        config = dict(text_config=dict(model_type=model_type) | config, model_type=how.get("outer", model_type.removesuffix("_text")), **ids)
    else:
        config = dict(model_type=model_type) | config
    return dict(config=dict(architectures=[architecture]) | config, run=architecture, embed=0.5, seed=60 + index, prompt=72, steps=16) | how


CHECKPOINTS = {name: spec(i, name) for i, name in enumerate(FAMILIES)}
