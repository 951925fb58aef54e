package foreign

// Reasons that several flags share.
const (
	onDevice   = no + "vapp keeps all weights on the device; the plan says whether they fit"
	noTransfer = no + "vapp moves no KV cache between servers"
	pages      = no + "vapp's pages have the size of their group: no hybrid layout to tune"
	loraShape  = no + "lora has the slots, their rank and the adapters, and nothing more"
	loraForm   = no + "PEFT adapters of plain LoRA are served, and no other form"
)

// vllmMemoryFlags configure memory.
var vllmMemoryFlags = []Flag{
	{"--gpu-memory-utilization --device-memory-utilization", One, "memory.utilization", ""},
	{"--kv-cache-memory-bytes", One, "memory.kvCache", ""},
	{"--kv-cache-dtype", One, "memory.kvCacheDtype", ""},
	{"--swap-space", One, "memory.swapSpace", ""},
	{"--block-size", One, "memory.blockSize", ""},
	{"--enable-prefix-caching", Boolean, "scheduler.prefixCaching", ""},
	{"--enable-lora", Boolean, "lora", ""},
	{"--max-loras", One, "lora.maxLoras", ""},
	{"--max-lora-rank", One, "lora.maxRank", ""},
	{"--lora-modules", Many, "lora.adapters", ""},

	{"--cpu-offload-gb", One, "", onDevice},
	{"--cpu-offload-params", Many, "", onDevice},
	{"--offload-backend", One, "", onDevice},
	{"--offload-group-size", One, "", onDevice},
	{"--offload-num-in-group", One, "", onDevice},
	{"--offload-prefetch-step", One, "", onDevice},
	{"--offload-params", Many, "", onDevice},
	{"--kv-offloading-size", One, "", no + "prefixes are kept on the device alone"},
	{"--kv-offloading-backend", One, "", no + "prefixes are kept on the device alone"},
	{"--kv-transfer-config", Object, "", noTransfer},
	{"--kv-events-config", Object, "serve.kvEvents", ""},
	{"--ec-transfer-config", Object, "", noTransfer},
	{"--ec-manager-config", Object, "", noTransfer},
	{"--kv-connector", One, "", noTransfer},
	{"--num-gpu-blocks-override", One, "", no + "memory.kvCache fixes the KV arena, in bytes"},
	{"--preemption-mode", One, "", no + "preempted sequences are recomputed, or swapped where memory.swapSpace is given"},
	{"--prefix-caching-hash-algo", One, "", no + "vapp has one hash for prefixes"},
	{"--prefix-cache-retention-interval", One, "", no + "prefixes stay until their pages are needed"},
	{"--prefix-match-unit", One, "", no + "prefixes match by whole pages"},
	{"--calculate-kv-scales", Boolean, "", no + "vapp computes no scales from dummy runs"},
	{"--kv-cache-dtype-skip-layers", Many, "", no + "all layers store keys and values alike"},
	{"--kv-sharing-fast-prefill", Boolean, "", kernelChoice},
	{"--disable-hybrid-kv-cache-manager", Boolean, "", pages},
	{"--mamba-cache-dtype", One, "", pages},
	{"--mamba-ssm-cache-dtype", One, "", pages},
	{"--mamba-block-size", One, "", pages},
	{"--mamba-cache-mode", One, "", pages},
	{"--mamba-backend", One, "", kernelChoice},
	{"--mamba-ssu-algorithm", One, "", kernelChoice},
	{"--enable-mamba-cache-stochastic-rounding", Boolean, "", kernelChoice},
	{"--mamba-cache-philox-rounds", One, "", kernelChoice},
	{"--replayssm-buffer-len", One, "", pages},
	{"--use-replayssm", Boolean, "", pages},
	{"--enable-mamba-shared-prefix-checkpoint", Boolean, "", pages},
	{"--swa-bounded-replay", Boolean, "", pages},
	{"--engram-config", Object, "", no + "vapp runs no model with a table of n-grams"},

	{"--max-cpu-loras", One, "", no + "every loaded adapter has a slot on the device; lora.maxLoras is the number of slots"},
	{"--lora-dtype", One, "", no + "slots have the dtype of activations"},
	{"--lora-extra-vocab-size", One, "", loraForm},
	{"--long-lora-scaling-factors", One, "", loraForm},
	{"--fully-sharded-loras", Boolean, "", loraShape},
	{"--max-lora-cls-labels", One, "", loraForm},
	{"--lora-target-modules", Many, "", no + "the slots have every module that the family can adapt"},
	{"--default-mm-loras", Object, "", loraForm},
	{"--enable-lora-bias", Boolean, "", loraForm},
	{"--enable-tower-connector-lora", Boolean, "", loraForm},
	{"--specialize-active-lora", Boolean, "", loraShape},
	{"--enable-mixed-moe-lora-format", Boolean, "", loraForm},
	{"--enable-moe-shared-loras", Boolean, "", loraForm},
	{"--enable-prompt-adapter", Boolean, "", no + "vapp has no prompt adapters"},
	{"--max-prompt-adapters", One, "", no + "vapp has no prompt adapters"},
	{"--max-prompt-adapter-token", One, "", no + "vapp has no prompt adapters"},
	{"--prompt-adapters", Many, "", no + "vapp has no prompt adapters"},
}
