package importer

// Reasons that several flags share.
const (
	ownTokenizer = no + "vapp takes tokenizer and config from the checkpoint itself"
	noCode       = no + "vapp runs no Python: neither code of a checkpoint nor plug-ins"
	wholePooling = no + "a pooling model computes each text separately"
	hubCache     = no + "vapp fetches into Hugging Face's cache and reads HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE itself"
	otherHub     = no + "vapp fetches from Hugging Face's hub, or from the mirror that HF_ENDPOINT names"
	otherWeights = no + "vapp reads the weights that model.source names"
	safeReader   = no + "vapp maps safetensors and GGUF files, and reads them its own way"
	kernelChoice = no + "vapp's plan picks the kernels, and vapp plan prints them"
	oldEngine    = no + "a setting of vLLM's engine before version 1"
	mediaOnly    = no + "multimodal.limits says how many media a request may carry, and nothing more"
)

// modelFlags select and configure the model.
var modelFlags = []flag{
	{"--model", one, modelSource, ""},
	{"--model-weights", one, nil, otherWeights},
	{"--revision", one, text("model.revision"), ""},
	{"--dtype", one, choice("model.dtype", dtypes), ""},
	{"--quantization -q", one, quantize, ""},
	{"--load-format", one, choice("model.loadFormat", loadFormats), ""},
	{"--max-model-len", one, tokens("maxModelLen"), ""},
	{"--served-model-name", many, words("serve.servedModelName"), ""},
	{"--generation-config", one, generationConfig, ""},
	{"--override-generation-config", object, overrideGeneration, ""},

	{"--task", one, task, ""},
	{"--runner", one, runner, ""},
	{"--convert", one, convert, ""},
	{"--tokenizer", one, nil, ownTokenizer},
	{"--tokenizer-mode", one, nil, ownTokenizer},
	{"--tokenizer-revision", one, nil, ownTokenizer},
	{"--tokenizer-pool-size", one, nil, ownTokenizer},
	{"--tokenizer-pool-type", one, nil, ownTokenizer},
	{"--tokenizer-pool-extra-config", one, nil, ownTokenizer},
	{"--skip-tokenizer-init", boolean, nil, ownTokenizer},
	{"--config-format", one, nil, ownTokenizer},
	{"--hf-config-path", one, nil, ownTokenizer},
	{"--hf-overrides", object, nil, no + "vapp does not override the checkpoint's config; change config.json itself"},
	{"--rope-scaling", object, nil, no + "vapp does not override the checkpoint's config; change config.json itself"},
	{"--rope-theta", one, nil, no + "vapp does not override the checkpoint's config; change config.json itself"},
	{"--model-class-overrides", object, nil, noCode},
	{"--model-impl", one, nil, no + "vapp has one implementation of each family"},
	{"--trust-remote-code", boolean, nil, noCode},
	{"--code-revision", one, nil, noCode},
	{"--seed", one, nil, no + "a request's random numbers depend on its own seed alone"},
	{"--hf-token", one, nil, hubCache},
	{"--download-dir", one, nil, hubCache},
	{"--allowed-local-media-path", one, nil, mediaOnly},
	{"--allowed-media-domains", many, nil, mediaOnly},
	{"--quantization-config", object, nil, no + "vapp reads how weights are stored from the checkpoint"},
	{"--quantization-param-path", one, nil, no + "vapp reads scales from the checkpoint"},
	{"--allow-deprecated-quantization", boolean, nil, no + "vapp reads how weights are stored from the checkpoint"},
	{"--qlora-adapter-name-or-path", one, nil, no + "vapp reads no QLoRA adapters"},
	{"--disable-sliding-window", boolean, nil, no + "windows are part of the model"},
	{"--disable-cascade-attn", boolean, nil, kernelChoice},
	{"--enable-prompt-embeds", boolean, nil, no + "prompts are text or tokens"},
	{"--enable-return-routed-experts", boolean, nil, no + "vapp does not return the experts of a token"},
	{"--return-sampling-mask", boolean, nil, no + "vapp does not return sampling masks"},
	{"--logprobs-mode", one, nil, no + "vapp has one kind of log-probabilities"},
	{"--use-fp64-gumbel", boolean, nil, kernelChoice},
	{"--enable-trace-replay", boolean, nil, no + "vapp replays no traces"},
	{"--override-neuron-config", object, nil, no + "vapp runs on CUDA devices and CPUs"},
	{"--override-pooler-config", object, poolerConfig, ""},
	{"--pooler-config", object, poolerConfig, ""},
	{"--override-attention-dtype", one, nil, kernelChoice},
	{"--enable-sleep-mode", boolean, nil, no + "stop the server to free its memory"},
	{"--enable-cumem-allocator", boolean, nil, no + "vapp allocates what the plan lists, once"},
	{"--logits-processors", many, nil, noCode},
	{"--logits-processor-pattern", one, nil, noCode},
	{"--io-processor-plugin", one, nil, noCode},
	{"--renderer-num-workers", one, nil, no + "templates are rendered by the goroutine of the request"},
	{"--use-tqdm-on-load", boolean, nil, no + "progress is shown where a terminal is"},
	{"--ignore-patterns", many, nil, safeReader},
	{"--model-loader-extra-config", object, nil, safeReader},
	{"--pt-load-map-location", one, nil, safeReader},
	{"--safetensors-load-strategy", one, nil, safeReader},
	{"--safetensors-prefetch-num-threads", one, nil, safeReader},
	{"--safetensors-prefetch-block-size", one, nil, safeReader},
	{"--weight-transfer-config", object, nil, safeReader},

	{"--language-model-only", boolean, languageOnly, ""},
	{"--limit-mm-per-prompt", object, mediaLimits, ""},
	{"--enable-mm-embeds", boolean, nil, mediaOnly},
	{"--media-io-kwargs", object, nil, mediaOnly},
	{"--mm-processor-kwargs", object, nil, mediaOnly},
	{"--mm-processor-cache-gb", one, nil, mediaOnly},
	{"--mm-processor-cache-type", one, nil, mediaOnly},
	{"--mm-hasher-algorithm", one, nil, mediaOnly},
	{"--mm-shm-cache-max-object-size-mb", one, nil, mediaOnly},
	{"--mm-encoder-only", boolean, nil, mediaOnly},
	{"--mm-encoder-tp-mode", one, nil, mediaOnly},
	{"--mm-encoder-attn-backend", one, nil, mediaOnly},
	{"--mm-encoder-attn-dtype", one, nil, mediaOnly},
	{"--mm-encoder-fp8-scale-path", one, nil, mediaOnly},
	{"--mm-encoder-fp8-scale-save-path", one, nil, mediaOnly},
	{"--mm-encoder-fp8-scale-save-margin", one, nil, mediaOnly},
	{"--mm-processor-device", one, nil, mediaOnly},
	{"--mm-ipc-gpu-memory-gb", one, nil, mediaOnly},
	{"--mm-device-do-normalize", boolean, nil, mediaOnly},
	{"--mm-tensor-ipc", one, nil, mediaOnly},
	{"--interleave-mm-strings", boolean, nil, mediaOnly},
	{"--skip-mm-profiling", boolean, nil, mediaOnly},
	{"--video-pruning-rate", one, nil, mediaOnly},
	{"--video-pruning-method", one, nil, mediaOnly},
	{"--disable-mm-preprocessor-cache", boolean, nil, mediaOnly},
	{"--enable-multimodal-encoder-data-parallel", boolean, nil, mediaOnly},
	{"--disable-chunked-mm-input", boolean, nil, mediaOnly},
}

// dtypes maps vLLM's dtypes to vapp's.
var dtypes = map[string]string{
	"auto": "auto", "half": "float16", "float16": "float16", "bfloat16": "bfloat16", "float": "float32", "float32": "float32",
}

const otherFormat = no + "vapp reads safetensors and GGUF, and detects which"

// loadFormats maps vLLM's load formats to vapp's.
var loadFormats = map[string]string{
	"auto": "auto", "safetensors": "safetensors", "gguf": "gguf", "dummy": "dummy",
	"hf": otherFormat, "pt": otherFormat, "npcache": otherFormat, "tensorizer": otherFormat, "sharded_state": otherFormat,
	"bitsandbytes": otherFormat, "mistral": otherFormat, "runai_streamer": otherFormat, "runai_streamer_sharded": otherFormat,
	"fastsafetensors": otherFormat, "instanttensor": otherFormat, "modelexpress": otherFormat,
}
