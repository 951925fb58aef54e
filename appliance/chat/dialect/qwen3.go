package dialect

// qwen3: <think> R </think> C, unless enable_thinking is false. A tool call ends a
// thought, and a second close marker is dropped.
var qwen3 = &thinking{open: "<think>", close: "</think>", inside: true, ends: []string{toolOpen}, swallows: true}
