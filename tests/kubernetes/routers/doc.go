// Package routers runs vapp behind the routers that people have: the endpoint picker of the Gateway API Inference
// Extension on a real API server, and vllm-router from PyPI.
// It must not know how vapp works inside: it starts the binary and speaks HTTP. Start reading at TestEndpointPicker.
package routers
