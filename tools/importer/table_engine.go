package importer

// Reasons that several flags share.
const (
	oldGraphs   = no + "graphs are captured by the number of sequences, not by length"
	decodeFirst = no + "vapp decodes first, and scheduler.itlTarget bounds what prefill may take of a step"
	oldDraft    = no + "an option of drafting in vLLM before version 1"
	traces      = no + "vapp writes metrics and logs, no traces"
	counters    = no + "GET /metrics has vapp's own figures"
	grammar     = no + "vapp has one engine for structured output"
)

// engineFlags configure scheduling, graphs and the backend.
var engineFlags = []flag{
	{"--max-num-seqs", one, integer("scheduler.maxNumSeqs"), ""},
	{"--max-num-batched-tokens", one, integer("scheduler.maxNumBatchedTokens"), ""},
	{"--enable-chunked-prefill", boolean, yes("scheduler.chunkedPrefill"), ""},
	{"--scheduling-policy", one, choice("scheduler.policy", map[string]string{"fcfs": "fcfs", "priority": "priority"}), ""},
	{"--async-scheduling", boolean, yes("scheduler.overlap"), ""},
	{"--enforce-eager", boolean, eager, ""},
	{"--cudagraph-capture-sizes --cuda-graph-sizes", many, captureSizes, ""},
	{"--max-cudagraph-capture-size", one, largestCapture, ""},
	{"--compilation-config -cc", object, compilation, ""},
	{"--optimization-level -O", object, compilation, ""},
	{"--speculative-config -sc", object, speculative, ""},
	{"--spec-method", one, specPart("method"), ""},
	{"--spec-model --speculative-model", one, specPart("model"), ""},
	{"--spec-tokens --num-speculative-tokens", one, specPart("num_speculative_tokens"), ""},
	{"--device", one, choice("backend", devices), ""},

	{"--max-num-scheduled-tokens", one, nil, decodeFirst},
	{"--long-prefill-token-threshold", one, nil, decodeFirst},
	{"--max-num-partial-prefills", one, nil, decodeFirst},
	{"--max-long-partial-prefills", one, nil, decodeFirst},
	{"--prefill-schedule-interval", one, nil, decodeFirst},
	{"--scheduler-reserve-full-isl", boolean, nil, no + "vapp admits requests that fit the plan, and refuses at once those that never fit"},
	{"--watermark", one, nil, no + "vapp admits requests that fit the plan, and refuses at once those that never fit"},
	{"--max-num-queued-tokens", one, nil, no + "serve.limits.maxQueue bounds waiting requests, by number"},
	{"--num-scheduler-steps", one, nil, oldEngine},
	{"--multi-step-stream-outputs", boolean, nil, oldEngine},
	{"--scheduler-delay-factor", one, nil, oldEngine},
	{"--num-lookahead-slots", one, nil, oldEngine},
	{"--use-v2-block-manager", boolean, nil, oldEngine},
	{"--disable-async-output-proc", boolean, nil, oldEngine},
	{"--max-paddings", one, nil, oldEngine},
	{"--scheduler-cls", one, nil, noCode},
	{"--stream-interval", one, nil, no + "every token is sent as it comes"},
	{"--max-seq-len-to-capture", one, nil, oldGraphs},
	{"--max-context-len-to-capture", one, nil, oldGraphs},
	{"--attention-backend", one, nil, kernelChoice},
	{"--attention-config -ac", object, nil, kernelChoice},
	{"--kernel-config", object, nil, kernelChoice},
	{"--moe-backend", one, nil, kernelChoice},
	{"--linear-backend", one, nil, kernelChoice},
	{"--ir-op-priority", object, nil, kernelChoice},
	{"--enable-flashinfer-autotune", boolean, nil, kernelChoice},
	{"--enable-bf16x3-router-gemm", boolean, nil, kernelChoice},
	{"--gdn-prefill-backend", one, nil, kernelChoice},
	{"--kda-prefill-backend", one, nil, kernelChoice},
	{"--performance-mode", one, nil, no + "vapp has one mode; scheduler says what it trades"},
	{"--diffusion-config -dc", object, nil, no + "vapp generates token by token"},
	{"--additional-config", object, nil, noCode},

	{"--speculative-model-quantization", one, nil, oldDraft},
	{"--speculative-draft-tensor-parallel-size -spec-draft-tp", one, nil, oldDraft},
	{"--speculative-max-model-len", one, nil, oldDraft},
	{"--speculative-disable-by-batch-size", one, nil, oldDraft},
	{"--speculative-disable-mqa-scorer", boolean, nil, oldDraft},
	{"--ngram-prompt-lookup-max", one, nil, oldDraft},
	{"--ngram-prompt-lookup-min", one, nil, oldDraft},
	{"--spec-decoding-acceptance-method", one, nil, no + "drafts are accepted by exact rejection sampling"},
	{"--typical-acceptance-sampler-posterior-threshold", one, nil, no + "drafts are accepted by exact rejection sampling"},
	{"--typical-acceptance-sampler-posterior-alpha", one, nil, no + "drafts are accepted by exact rejection sampling"},
	{"--disable-logprobs-during-spec-decoding", boolean, nil, no + "log-probabilities are returned with and without drafts"},
	{"--per-request-spec-decode-metrics", boolean, nil, counters},

	{"--guided-decoding-backend", one, nil, grammar},
	{"--guided-decoding-disable-fallback", boolean, nil, grammar},
	{"--guided-decoding-disable-any-whitespace", boolean, nil, grammar},
	{"--guided-decoding-disable-additional-properties", boolean, nil, grammar},
	{"--structured-outputs-config", object, structuredOutputs, ""},
	{"--reasoning-config", object, nil, no + "a request says how long the model may think"},

	{"--show-hidden-metrics-for-version", one, hiddenMetrics, ""},
	{"--otlp-traces-endpoint", one, nil, traces},
	{"--collect-detailed-traces", many, nil, traces},
	{"--enable-layerwise-nvtx-tracing", boolean, nil, traces},
	{"--profiler-config", object, nil, traces},
	{"--kv-cache-metrics", boolean, nil, counters},
	{"--kv-cache-metrics-sample", one, nil, counters},
	{"--cudagraph-metrics", boolean, nil, counters},
	{"--enable-mfu-metrics", boolean, nil, counters},
	{"--enable-logging-iteration-details", boolean, nil, counters},
	{"--jit-monitor-mode", one, nil, no + "vapp compiles nothing while it runs"},
	{"--jit-monitor-verbose", boolean, nil, no + "vapp compiles nothing while it runs"},
	{"--fail-on-environ-validation", boolean, nil, no + "vapp reads no VLLM_ variables but those that a profile names"},
}

const otherDevice = no + "vapp runs on CUDA devices and CPUs"

// devices maps vLLM's device names to backends.
var devices = map[string]string{
	"auto": "auto", "cuda": "cuda", "cpu": "cpu",
	"neuron": otherDevice, "openvino": otherDevice, "tpu": otherDevice, "xpu": otherDevice, "hpu": otherDevice, "rocm": otherDevice,
}
