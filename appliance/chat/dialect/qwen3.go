package dialect

// qwen3 is <think> R </think> C, unless enable_thinking is false. A tool call ends the
// reasoning R, and a second close marker is dropped.
var qwen3 = &thinking{open: "<think>", close: "</think>", inside: true, ends: []string{toolOpen}, swallows: true}

// The formats that differ from qwen3 in one property: reasoning that may begin again
// (glm45), white space at its end that is dropped (nemotron_v3), other markers (seed_oss), markers around
// the content (ernie45).
var (
	glmThinking   = &thinking{open: "<think>", close: "</think>", inside: true, ends: []string{toolOpen}, swallows: true, reopens: true}
	nemotron      = &thinking{open: "<think>", close: "</think>", inside: true, ends: []string{toolOpen}, swallows: true, trims: true}
	ernieThinking = &thinking{open: "<think>", close: "</think>", inside: true, ends: []string{toolOpen}, swallows: true, trims: true, framed: true}
	seedThinking  = &thinking{open: "<seed:think>", close: "</seed:think>", inside: true, ends: []string{"<seed:tool_call>"}, swallows: true}
)
