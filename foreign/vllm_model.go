package foreign

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
	towerWhole   = no + "the vision tower is whole on every rank"
	mediaCache   = no + "multimodal.cache is memory of the process, with keys of its own"
	mediaOnCPU   = no + "images are decoded and resized on the CPU"
	wholeFrames  = no + "every frame keeps all its tokens"
)

// vllmModelFlags select and configure the model.
var vllmModelFlags = []Flag{
	{"--model", One, "model.source", ""},
	{"--model-weights", One, "", otherWeights},
	{"--revision", One, "model.revision", ""},
	{"--dtype", One, "model.dtype", ""},
	{"--quantization -q", One, "quantization", ""},
	{"--load-format", One, "model.loadFormat", ""},
	{"--max-model-len", One, "maxModelLen", ""},
	{"--served-model-name", Many, "serve.servedModelName", ""},
	{"--generation-config", One, "sampling.generationConfig", ""},
	{"--override-generation-config", Object, "sampling", ""},

	{"--task", One, "model.convert", ""},
	{"--runner", One, "model.runner", ""},
	{"--convert", One, "model.convert", ""},
	{"--tokenizer", One, "", ownTokenizer},
	{"--tokenizer-mode", One, "", ownTokenizer},
	{"--tokenizer-revision", One, "", ownTokenizer},
	{"--tokenizer-pool-size", One, "", ownTokenizer},
	{"--tokenizer-pool-type", One, "", ownTokenizer},
	{"--tokenizer-pool-extra-config", One, "", ownTokenizer},
	{"--skip-tokenizer-init", Boolean, "", ownTokenizer},
	{"--config-format", One, "", ownTokenizer},
	{"--hf-config-path", One, "", ownTokenizer},
	{"--hf-overrides", Object, "model.overrides", ""},
	{"--rope-scaling", Object, "model.rope", ""},
	{"--rope-theta", One, "model.rope.theta", ""},
	{"--model-class-overrides", Object, "", noCode},
	{"--model-impl", One, "", no + "vapp has one implementation of each family"},
	{"--trust-remote-code", Boolean, "", noCode},
	{"--code-revision", One, "", noCode},
	{"--seed", One, "", no + "a request's random numbers depend on its own seed alone"},
	{"--hf-token", One, "", hubCache},
	{"--download-dir", One, "", hubCache},
	{"--allowed-local-media-path", One, "multimodal.allowedPath", ""},
	{"--allowed-media-domains", Many, "multimodal.allowedDomains", ""},
	{"--quantization-config", Object, "", no + "vapp reads how weights are stored from the checkpoint"},
	{"--quantization-param-path", One, "", no + "vapp reads scales from the checkpoint"},
	{"--allow-deprecated-quantization", Boolean, "", no + "vapp reads how weights are stored from the checkpoint"},
	{"--qlora-adapter-name-or-path", One, "", no + "vapp reads no QLoRA adapters"},
	{"--disable-sliding-window", Boolean, "", no + "windows are part of the model"},
	{"--disable-cascade-attn", Boolean, "", kernelChoice},
	{"--enable-prompt-embeds", Boolean, "", no + "prompts are text or tokens"},
	{"--enable-return-routed-experts", Boolean, "", no + "vapp does not return the experts of a token"},
	{"--return-sampling-mask", Boolean, "", no + "vapp does not return sampling masks"},
	{"--logprobs-mode", One, "", no + "vapp has one kind of log-probabilities"},
	{"--use-fp64-gumbel", Boolean, "", kernelChoice},
	{"--enable-trace-replay", Boolean, "", no + "vapp replays no traces"},
	{"--override-neuron-config", Object, "", no + "vapp runs on CUDA devices and CPUs"},
	{"--override-pooler-config", Object, "pooling", ""},
	{"--pooler-config", Object, "pooling", ""},
	{"--override-attention-dtype", One, "", kernelChoice},
	{"--enable-sleep-mode", Boolean, "", no + "stop the server to free its memory"},
	{"--sleep-mode-backend", One, "", no + "stop the server to free its memory"},
	{"--sleep-mode-offload-cudagraph", Boolean, "", no + "stop the server to free its memory"},
	{"--sleep-preserve-parameter-names", Many, "", no + "stop the server to free its memory"},
	{"--enable-cumem-allocator", Boolean, "", no + "vapp allocates what the plan lists, once"},
	{"--logits-processors", Many, "", noCode},
	{"--logits-processor-pattern", One, "", noCode},
	{"--io-processor-plugin", One, "", noCode},
	{"--renderer-num-workers", One, "", no + "templates are rendered by the goroutine of the request"},
	{"--use-tqdm-on-load", Boolean, "", no + "progress is shown where a terminal is"},
	{"--ignore-patterns", Many, "", safeReader},
	{"--model-loader-extra-config", Object, "", safeReader},
	{"--pt-load-map-location", One, "", safeReader},
	{"--safetensors-load-strategy", One, "", safeReader},
	{"--safetensors-prefetch-num-threads", One, "", safeReader},
	{"--safetensors-prefetch-block-size", One, "", safeReader},
	{"--weight-transfer-config", Object, "", safeReader},

	{"--language-model-only", Boolean, "multimodal", ""},
	{"--limit-mm-per-prompt", Object, "multimodal.limits", ""},
	{"--enable-mm-embeds", Boolean, "", no + "a request has media, not embeddings of media"},
	{"--media-io-kwargs", Object, "multimodal.video", ""},
	{"--mm-processor-kwargs", Object, "multimodal.image", ""},
	{"--mm-processor-cache-gb", One, "multimodal.cache", ""},
	{"--mm-processor-cache-type", One, "", mediaCache},
	{"--mm-hasher-algorithm", One, "", mediaCache},
	{"--mm-shm-cache-max-object-size-mb", One, "", mediaCache},
	{"--mm-encoder-only", Boolean, "", no + "vapp serves the whole model"},
	{"--mm-encoder-tp-mode", One, "", towerWhole},
	{"--mm-encoder-attn-backend", One, "", kernelChoice},
	{"--mm-encoder-attn-dtype", One, "", kernelChoice},
	{"--mm-encoder-fp8-scale-path", One, "", kernelChoice},
	{"--mm-encoder-fp8-scale-save-path", One, "", kernelChoice},
	{"--mm-encoder-fp8-scale-save-margin", One, "", kernelChoice},
	{"--mm-processor-device", One, "", mediaOnCPU},
	{"--mm-ipc-gpu-memory-gb", One, "", mediaOnCPU},
	{"--mm-device-do-normalize", Boolean, "", mediaOnCPU},
	{"--mm-tensor-ipc", One, "", oneEngine},
	{"--interleave-mm-strings", Boolean, "", contentForm},
	{"--skip-mm-profiling", Boolean, "", no + "the largest image is a line of vapp's plan, always"},
	{"--video-pruning-rate", One, "", wholeFrames},
	{"--video-pruning-method", One, "", wholeFrames},
	{"--disable-mm-preprocessor-cache", Boolean, "multimodal.cache", ""},
	{"--enable-multimodal-encoder-data-parallel", Boolean, "", towerWhole},
	{"--disable-chunked-mm-input", Boolean, "", no + "an image whose tokens see each other is never split"},
}
