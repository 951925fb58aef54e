package dialect

// deepseekR1 is <think> R </think> C. The open marker is optional, because it is usually in
// the prompt.
var deepseekR1 = &thinking{open: "<think>", close: "</think>", inside: true}
