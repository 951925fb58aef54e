package dialect

// deepseekR1: <think> R </think> C. The open marker is optional: the template
// usually gives it.
var deepseekR1 = &thinking{open: "<think>", close: "</think>", inside: true}
