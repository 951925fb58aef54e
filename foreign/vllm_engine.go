package foreign

// Reasons that several flags share.
const (
	oldGraphs   = no + "graphs are captured by the number of sequences, not by length"
	decodeFirst = no + "vapp decodes first, and scheduler.itlTarget bounds what prefill may take of a step"
	oldDraft    = no + "an option of drafting in vLLM before version 1"
	traces      = no + "vapp writes metrics and logs, no traces"
	counters    = no + "GET /metrics has vapp's own figures"
	grammar     = no + "vapp has one engine for structured output"
)

// vllmEngineFlags configure scheduling, graphs and the backend.
var vllmEngineFlags = []Flag{
	{"--max-num-seqs", One, "scheduler.maxNumSeqs", ""},
	{"--max-num-batched-tokens", One, "scheduler.maxNumBatchedTokens", ""},
	{"--enable-chunked-prefill", Boolean, "scheduler.chunkedPrefill", ""},
	{"--scheduling-policy", One, "scheduler.policy", ""},
	{"--async-scheduling", Boolean, "scheduler.overlap", ""},
	{"--enforce-eager", Boolean, "cudagraph.mode", ""},
	{"--cudagraph-capture-sizes --cuda-graph-sizes", Many, "cudagraph.captureSizes", ""},
	{"--max-cudagraph-capture-size", One, "cudagraph.captureSizes", ""},
	{"--compilation-config -cc", Object, "cudagraph", ""},
	{"--optimization-level -O", Object, "cudagraph", ""},
	{"--speculative-config -sc", Object, "speculative", ""},
	{"--spec-method", One, "speculative", ""},
	{"--spec-model --speculative-model", One, "speculative", ""},
	{"--spec-tokens --num-speculative-tokens", One, "speculative", ""},
	{"--device", One, "backend", ""},

	{"--max-num-scheduled-tokens", One, "", decodeFirst},
	{"--long-prefill-token-threshold", One, "", decodeFirst},
	{"--max-num-partial-prefills", One, "", decodeFirst},
	{"--max-long-partial-prefills", One, "", decodeFirst},
	{"--prefill-schedule-interval", One, "", decodeFirst},
	{"--scheduler-reserve-full-isl", Boolean, "", no + "vapp admits requests that fit the plan, and refuses at once those that never fit"},
	{"--watermark", One, "", no + "vapp admits requests that fit the plan, and refuses at once those that never fit"},
	{"--max-num-queued-tokens", One, "", no + "serve.limits.maxQueue bounds waiting requests, by number"},
	{"--num-scheduler-steps", One, "", oldEngine},
	{"--multi-step-stream-outputs", Boolean, "", oldEngine},
	{"--scheduler-delay-factor", One, "", oldEngine},
	{"--num-lookahead-slots", One, "", oldEngine},
	{"--use-v2-block-manager", Boolean, "", oldEngine},
	{"--disable-async-output-proc", Boolean, "", oldEngine},
	{"--max-paddings", One, "", oldEngine},
	{"--scheduler-cls", One, "", noCode},
	{"--stream-interval", One, "", no + "every token is sent as it comes"},
	{"--max-seq-len-to-capture", One, "", oldGraphs},
	{"--max-context-len-to-capture", One, "", oldGraphs},
	{"--attention-backend", One, "", kernelChoice},
	{"--attention-config -ac", Object, "", kernelChoice},
	{"--kernel-config", Object, "", kernelChoice},
	{"--moe-backend", One, "", kernelChoice},
	{"--linear-backend", One, "", kernelChoice},
	{"--ir-op-priority", Object, "", kernelChoice},
	{"--enable-flashinfer-autotune", Boolean, "", kernelChoice},
	{"--enable-bf16x3-router-gemm", Boolean, "", kernelChoice},
	{"--gdn-prefill-backend", One, "", kernelChoice},
	{"--kda-prefill-backend", One, "", kernelChoice},
	{"--performance-mode", One, "", no + "vapp has one mode; scheduler says what it trades"},
	{"--diffusion-config -dc", Object, "", no + "vapp generates token by token"},
	{"--additional-config", Object, "", noCode},

	{"--speculative-model-quantization", One, "", oldDraft},
	{"--speculative-draft-tensor-parallel-size -spec-draft-tp", One, "", oldDraft},
	{"--speculative-max-model-len", One, "", oldDraft},
	{"--speculative-disable-by-batch-size", One, "", oldDraft},
	{"--speculative-disable-mqa-scorer", Boolean, "", oldDraft},
	{"--ngram-prompt-lookup-max", One, "", oldDraft},
	{"--ngram-prompt-lookup-min", One, "", oldDraft},
	{"--spec-decoding-acceptance-method", One, "", no + "drafts are accepted by exact rejection sampling"},
	{"--typical-acceptance-sampler-posterior-threshold", One, "", no + "drafts are accepted by exact rejection sampling"},
	{"--typical-acceptance-sampler-posterior-alpha", One, "", no + "drafts are accepted by exact rejection sampling"},
	{"--disable-logprobs-during-spec-decoding", Boolean, "", no + "log-probabilities are returned with and without drafts"},
	{"--per-request-spec-decode-metrics", Boolean, "", counters},

	{"--guided-decoding-backend", One, "", grammar},
	{"--guided-decoding-disable-fallback", Boolean, "", grammar},
	{"--guided-decoding-disable-any-whitespace", Boolean, "", grammar},
	{"--guided-decoding-disable-additional-properties", Boolean, "", grammar},
	{"--structured-outputs-config", Object, "parsers.reasoning", ""},
	{"--reasoning-config", Object, "", no + "a request says how long the model may think"},

	{"--show-hidden-metrics-for-version", One, "serve.metricsCompat", ""},
	{"--otlp-traces-endpoint", One, "", traces},
	{"--collect-detailed-traces", Many, "", traces},
	{"--enable-layerwise-nvtx-tracing", Boolean, "", traces},
	{"--profiler-config", Object, "", traces},
	{"--kv-cache-metrics", Boolean, "", counters},
	{"--kv-cache-metrics-sample", One, "", counters},
	{"--cudagraph-metrics", Boolean, "", counters},
	{"--enable-mfu-metrics", Boolean, "", counters},
	{"--enable-logging-iteration-details", Boolean, "", counters},
	{"--jit-monitor-mode", One, "", no + "vapp compiles nothing while it runs"},
	{"--jit-monitor-verbose", Boolean, "", no + "vapp compiles nothing while it runs"},
	{"--fail-on-environ-validation", Boolean, "", no + "vapp reads no VLLM_ variables but those that a profile names"},
}
