package importer

// Reasons that several flags share.
const (
	onDevice   = no + "vapp keeps all weights on the device; the plan says whether they fit"
	noTransfer = no + "vapp moves no KV cache between servers"
	pages      = no + "vapp's pages have the size of their group: no hybrid layout to tune"
	loraShape  = no + "lora has the number and the rank of adapters, and nothing more"
)

// memoryFlags configure memory.
var memoryFlags = []flag{
	{"--gpu-memory-utilization", one, number("memory.utilization"), ""},
	{"--kv-cache-memory-bytes", one, bytesOf("memory.kvCache", 1), ""},
	{"--kv-cache-dtype", one, choice("memory.kvCacheDtype", kvDtypes), ""},
	{"--swap-space", one, bytesOf("memory.swapSpace", 1<<30), ""},
	{"--block-size", one, blockSize, ""},
	{"--enable-prefix-caching", boolean, yes("scheduler.prefixCaching"), ""},
	{"--enable-lora", boolean, adapters("enable"), ""},
	{"--max-loras", one, adapters("maxLoras"), ""},
	{"--max-lora-rank", one, adapters("maxRank"), ""},

	{"--cpu-offload-gb", one, nil, onDevice},
	{"--cpu-offload-params", many, nil, onDevice},
	{"--offload-backend", one, nil, onDevice},
	{"--offload-group-size", one, nil, onDevice},
	{"--offload-num-in-group", one, nil, onDevice},
	{"--offload-prefetch-step", one, nil, onDevice},
	{"--offload-params", many, nil, onDevice},
	{"--kv-offloading-size", one, nil, no + "prefixes are kept on the device alone"},
	{"--kv-offloading-backend", one, nil, no + "prefixes are kept on the device alone"},
	{"--kv-transfer-config", object, nil, noTransfer},
	{"--kv-events-config", object, nil, noTransfer},
	{"--ec-transfer-config", object, nil, noTransfer},
	{"--ec-manager-config", object, nil, noTransfer},
	{"--kv-connector", one, nil, noTransfer},
	{"--num-gpu-blocks-override", one, nil, no + "memory.kvCache fixes the KV arena, in bytes"},
	{"--preemption-mode", one, nil, no + "preempted sequences are recomputed, or swapped where memory.swapSpace is given"},
	{"--prefix-caching-hash-algo", one, nil, no + "vapp has one hash for prefixes"},
	{"--prefix-cache-retention-interval", one, nil, no + "prefixes stay until their pages are needed"},
	{"--prefix-match-unit", one, nil, no + "prefixes match by whole pages"},
	{"--calculate-kv-scales", boolean, nil, no + "vapp computes no scales from dummy runs"},
	{"--kv-cache-dtype-skip-layers", many, nil, no + "all layers store keys and values alike"},
	{"--kv-sharing-fast-prefill", boolean, nil, kernelChoice},
	{"--disable-hybrid-kv-cache-manager", boolean, nil, pages},
	{"--mamba-cache-dtype", one, nil, pages},
	{"--mamba-ssm-cache-dtype", one, nil, pages},
	{"--mamba-block-size", one, nil, pages},
	{"--mamba-cache-mode", one, nil, pages},
	{"--mamba-backend", one, nil, kernelChoice},
	{"--mamba-ssu-algorithm", one, nil, kernelChoice},
	{"--enable-mamba-cache-stochastic-rounding", boolean, nil, kernelChoice},
	{"--mamba-cache-philox-rounds", one, nil, kernelChoice},
	{"--replayssm-buffer-len", one, nil, pages},
	{"--use-replayssm", boolean, nil, pages},

	{"--lora-modules", many, nil, no + "a profile plans the memory of adapters; it does not name them"},
	{"--max-cpu-loras", one, nil, loraShape},
	{"--lora-dtype", one, nil, loraShape},
	{"--lora-extra-vocab-size", one, nil, loraShape},
	{"--long-lora-scaling-factors", one, nil, loraShape},
	{"--fully-sharded-loras", boolean, nil, loraShape},
	{"--lora-target-modules", many, nil, loraShape},
	{"--default-mm-loras", object, nil, loraShape},
	{"--enable-lora-bias", boolean, nil, loraShape},
	{"--enable-tower-connector-lora", boolean, nil, loraShape},
	{"--specialize-active-lora", boolean, nil, loraShape},
	{"--enable-mixed-moe-lora-format", boolean, nil, loraShape},
	{"--enable-moe-shared-loras", boolean, nil, loraShape},
	{"--enable-prompt-adapter", boolean, nil, no + "vapp has no prompt adapters"},
	{"--max-prompt-adapters", one, nil, no + "vapp has no prompt adapters"},
	{"--max-prompt-adapter-token", one, nil, no + "vapp has no prompt adapters"},
	{"--prompt-adapters", many, nil, no + "vapp has no prompt adapters"},
}

const otherKV = no + "vapp stores keys and values as auto, bfloat16, float16, float32 or fp8"

// kvDtypes maps vLLM's dtypes of the KV cache to vapp's.
var kvDtypes = map[string]string{
	"auto": "auto", "bfloat16": "bfloat16", "float16": "float16", "half": "float16", "float32": "float32",
	"fp8": "fp8", "fp8_e4m3": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2",
	"fp8_inc": otherKV, "fp8_ds_mla": otherKV, "nvfp4": otherKV, "int8": otherKV, "fp8_per_token_head": otherKV, "int8_per_token_head": otherKV,
	"turboquant_k8v4": otherKV, "turboquant_4bit_nc": otherKV, "turboquant_k3v4_nc": otherKV, "turboquant_3bit_nc": otherKV,
}
