// Package routers runs vapp behind the routers that people have: the endpoint picker of the Gateway API Inference
// Extension on a real API server, vllm-router from PyPI, and the router of vLLM's production stack, where its sources are.
// It must not know how vapp works inside: it starts the binary and speaks HTTP. Start reading at TestEndpointPicker.
package routers
