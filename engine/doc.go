// Package engine runs one model: Open loads a planned model onto a device, Submit queues a
// request of tokens, and each Stream delivers the generated tokens. One goroutine, the loop,
// owns the device, the scheduler and the KV pages. Inspect reads a model's headers and
// NewAccount computes the memory that Open will take, both without a device.
//
// It must not know HTTP, chat templates, text or profiles: it imports nothing of appliance.
// Start reading at Engine.Submit in engine.go, then loop.runSteps in loop.go.
package engine
