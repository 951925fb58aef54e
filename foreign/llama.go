package foreign

import "strings"

// Reasons that several flags share.
const (
	allLayers  = no + layersPlaced
	mappedFile = no + mapped
	requestHas = no + "a request says it"
	oneRope    = no + "vapp takes RoPE from the checkpoint itself"
	forRun     = no + "vapp run PROFILE --prompt TEXT answers prompts; a profile has none"
)

// llamaFlags are the flags of llama-server and llama-cli.
var llamaFlags = []Flag{
	{"--model -m", One, "model.source", ""},
	{"--hf-repo -hf -hfr", One, "model.source", ""},
	{"--hf-file -hff", One, "model.source", ""},
	{"--ctx-size -c", One, "maxModelLen", ""},
	{"--parallel -np", One, "scheduler.maxNumSeqs", ""},
	{"--batch-size -b", One, "scheduler.maxNumBatchedTokens", ""},
	{"--threads -t", One, "cpu.threads", ""},
	{"--host", One, "serve.host", ""},
	{"--port", One, "serve.port", ""},
	{"--alias -a", One, "serve.servedModelName", ""},
	{"--api-key", One, "serve.apiKeys", ""},
	{"--api-key-file", One, "serve.apiKeys", ""},
	{"--ssl-key-file", One, "serve.tls.keyFile", ""},
	{"--ssl-cert-file", One, "serve.tls.certFile", ""},
	{"--cache-type-k -ctk", One, "memory.kvCacheDtype", ""},
	{"--cache-prompt", Boolean, "scheduler.prefixCaching", ""},
	{"--chat-template", One, "parsers.chatTemplate", ""},
	{"--chat-template-file", One, "parsers.chatTemplate", ""},
	{"--chat-template-kwargs", Object, "parsers.chatTemplateKwargs", ""},
	{"--temp --temperature", One, "sampling.temperature", ""},
	{"--top-k", One, "sampling.topK", ""},
	{"--top-p", One, "sampling.topP", ""},
	{"--min-p", One, "sampling.minP", ""},
	{"--repeat-penalty", One, "sampling.repetitionPenalty", ""},
	{"--predict --n-predict -n", One, "sampling.maxTokens", ""},
	{"--embedding --embeddings", Boolean, "model.convert", ""},
	{"--reranking --rerank", Boolean, "model.convert", ""},
	{"--gpu-layers --n-gpu-layers -ngl", One, "backend", ""},

	{"--hf-token -hft", One, "", hubCache},
	{"--model-url -mu", One, "", no + "vapp fetches from the hub alone; download the file and name it in model.source"},
	{"--cache-type-v -ctv", One, "", no + "keys and values have one dtype, memory.kvCacheDtype"},
	{"--ubatch-size -ub", One, "", kernelChoice},
	{"--threads-batch -tb", One, "", no + "cpu.threads is for prefill and decode"},
	{"--threads-http", One, "", no + "cpu.httpShare says what the pool leaves to HTTP"},
	{"--flash-attn -fa", Switch, "", kernelChoice},
	{"--mlock", Boolean, "", mappedFile},
	{"--mmap", Boolean, "", mappedFile},
	{"--numa", One, "", no + "put numactl before vapp up"},
	{"--split-mode -sm", One, "", no + "parallel.tensor says how many devices share every layer"},
	{"--tensor-split -ts", One, "", no + "parallel.tensor devices take equal shares"},
	{"--main-gpu -mg", One, "", no + "CUDA_VISIBLE_DEVICES says which devices vapp sees"},
	{"--device -dev", One, "", no + "CUDA_VISIBLE_DEVICES says which devices vapp sees"},
	{"--override-tensor -ot", One, "", onDevice},
	{"--cpu-moe -cmoe", Boolean, "", onDevice},
	{"--n-cpu-moe -ncmoe", One, "", onDevice},
	{"--no-kv-offload -nkvo", Boolean, "", onDevice},
	{"--kv-unified -kvu", Boolean, "", no + "sequences always share the pages of one KV cache"},
	{"--cont-batching -cb", Boolean, "", no + "vapp always batches continuously"},
	{"--jinja", Boolean, "", no + "chat templates are always rendered as Jinja"},
	{"--warmup", Boolean, "", no + "nothing is compiled at the first request"},
	{"--webui", Boolean, "", no + "the page at / is always served"},
	{"--metrics", Boolean, "", no + "GET /metrics is always served"},
	{"--slots", Boolean, "", counters},
	{"--props", Boolean, "", no + "a running server is changed by its profile"},
	{"--slot-save-path", One, "", no + "prefixes are kept on the device alone"},
	{"--cache-reuse", One, "", no + "prefixes match by whole pages"},
	{"--cache-ram -cram", One, "", no + "prefixes are kept on the device alone"},
	{"--context-shift", Boolean, "", no + "a sequence ends at maxModelLen"},
	{"--keep", One, "", no + "a sequence ends at maxModelLen"},
	{"--swa-full", Boolean, "", pages},
	{"--timeout -to", One, "", no + "serve.limits.requestTimeout and serve.timeouts say how long a request may take"},
	{"--reasoning-format", One, "", no + "parsers.reasoning names the parser of the model's thoughts"},
	{"--reasoning-budget", One, "", no + "a request says how long the model may think"},
	{"--pooling", One, "pooling.type", ""},
	{"--rope-scaling", One, "model.rope.type", ""},
	{"--rope-scale", One, "model.rope.factor", ""},
	{"--rope-freq-base", One, "model.rope.theta", ""},
	{"--rope-freq-scale", One, "model.rope.factor", ""},
	{"--yarn-orig-ctx", One, "model.rope.original", ""},
	{"--yarn-ext-factor", One, "", oneRope},
	{"--yarn-attn-factor", One, "model.rope.attentionFactor", ""},
	{"--yarn-beta-slow", One, "model.rope.betaSlow", ""},
	{"--yarn-beta-fast", One, "model.rope.betaFast", ""},
	{"--override-kv", One, "", no + "vapp does not override the checkpoint's metadata"},
	{"--lora", One, "", no + "lora.adapters names folders of PEFT adapters; adapters in GGUF are not read"},
	{"--lora-scaled", Many, "", no + "lora.adapters names folders of PEFT adapters; adapters in GGUF are not read"},
	{"--control-vector", One, "", no + "vapp has no control vectors"},
	{"--model-draft -md", One, "", no + `speculative: method: "draft_model" names a draft model and the number of its tokens`},
	{"--draft-max --draft --draft-n", One, "", no + "speculative.numTokens is the number of draft tokens"},
	{"--draft-min --draft-n-min", One, "", oldDraft0},
	{"--draft-p-min", One, "", oldDraft0},
	{"--mmproj -mm", One, "", no + "vision towers in GGUF are not read; take the model as safetensors, with multimodal.limits"},
	{"--seed -s", One, "", no + "a request's random numbers depend on its own seed alone"},
	{"--samplers", One, "", no + "vapp has one order of samplers"},
	{"--sampling-seq", One, "", no + "vapp has one order of samplers"},
	{"--repeat-last-n", One, "", no + "the penalty covers prompt and reply"},
	{"--presence-penalty", One, "", requestHas},
	{"--frequency-penalty", One, "", requestHas},
	{"--typical", One, "", no + "vapp does not sample by typicality"},
	{"--mirostat", One, "", no + "vapp does not sample by Mirostat"},
	{"--dry-multiplier", One, "", no + "vapp has no DRY penalty"},
	{"--xtc-probability", One, "", no + "vapp does not sample by XTC"},
	{"--ignore-eos", Boolean, "", requestHas},
	{"--logit-bias", One, "", requestHas},
	{"--grammar", One, "", requestHas},
	{"--grammar-file", One, "", requestHas},
	{"--json-schema -j", One, "", requestHas},
	{"--path", One, "", no + "vapp serves its own page at /"},
	{"--log-disable", Boolean, "", no + "log.level says what is written"},
	{"--log-file", One, "", no + "the log goes to standard error"},
	{"--log-colors", Switch, "", no + "log.format says how lines are written"},
	{"--log-prefix", Boolean, "", no + "log.format says how lines are written"},
	{"--log-timestamps", Boolean, "", no + "log.format says how lines are written"},
	{"--verbose --log-verbose -v", Boolean, "log.level", ""},
	{"--verbosity --log-verbosity -lv", One, "", no + "log.level says what is written"},
	{"--offline", Boolean, "", no + "vapp up --offline uses no network"},
	{"--check-tensors", Boolean, "", safeReader},
	{"--poll", One, "", kernelChoice},
	{"--prio", One, "", no + "put nice before vapp up"},
	{"--cpu-mask -C", One, "", no + "put taskset before vapp up"},
	{"--prompt -p", One, "", forRun},
	{"--file -f", One, "", forRun},
	{"--system-prompt -sys", One, "", forRun},
	{"--conversation -cnv", Boolean, "", forRun},
	{"--interactive -i", Boolean, "", forRun},
	{"--single-turn -st", Boolean, "", forRun},
	{"--interactive-first -if", Boolean, "", forRun},
	{"--color", Boolean, "", forRun},
}

const oldDraft0 = no + "speculative has the number of draft tokens, and nothing more"

// llamaVariables returns the variables LLAMA_ARG_… of the flags.
func llamaVariables() []Variable {
	named := map[string]string{
		"LLAMA_ARG_HF_REPO": "--hf-repo", "LLAMA_ARG_HF_FILE": "--hf-file", "LLAMA_ARG_N_PARALLEL": "--parallel", "LLAMA_ARG_BATCH": "--batch-size",
		"LLAMA_ARG_UBATCH": "--ubatch-size", "LLAMA_ARG_N_GPU_LAYERS": "--gpu-layers", "LLAMA_ARG_N_PREDICT": "--predict", "LLAMA_API_KEY": "--api-key",
		"LLAMA_ARG_EMBEDDINGS": "--embedding", "LLAMA_ARG_ENDPOINT_METRICS": "--metrics", "LLAMA_ARG_ENDPOINT_SLOTS": "--slots",
	}
	var list []Variable
	for name, flag := range named {
		list = append(list, Variable{Name: name, Field: flag})
	}
	for _, f := range llamaFlags {
		name, _, _ := strings.Cut(f.Names, " ")
		list = append(list, Variable{Name: "LLAMA_ARG_" + strings.ToUpper(strings.ReplaceAll(strings.TrimPrefix(name, "--"), "-", "_")), Field: name})
	}
	return append(list, Variable{Name: "LLAMA_*", Why: no + "vapp reads no variables of llama.cpp"})
}
