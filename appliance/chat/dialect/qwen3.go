package dialect

// qwen3 is <think> R </think> C, unless enable_thinking is false. A tool call ends the
// reasoning R, and a second close marker is dropped.
var qwen3 = &thinking{open: "<think>", close: "</think>", inside: true, ends: []string{toolOpen}, swallows: true}
