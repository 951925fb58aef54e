package traces

import "go.opentelemetry.io/otel/attribute"

// Names of spans, as vLLM has them (vllm/tracing, and instrument in its loaders).
const (
	spanRequest = "llm_request"
	spanLoad    = "Load weights"
	spanCapture = "Capture model"
)

// Attributes of llm_request that vLLM sets (vllm/tracing/utils.py, vllm/v1/engine/output_processor.py).
const (
	requestID          = attribute.Key("gen_ai.request.id")
	requestN           = attribute.Key("gen_ai.request.n")
	requestMaxTokens   = attribute.Key("gen_ai.request.max_tokens")
	requestTopP        = attribute.Key("gen_ai.request.top_p")
	requestTemperature = attribute.Key("gen_ai.request.temperature")
	promptTokens       = attribute.Key("gen_ai.usage.prompt_tokens")
	completionTokens   = attribute.Key("gen_ai.usage.completion_tokens")
	cachedTokens       = attribute.Key("gen_ai.usage.cached_tokens")
	responseModel      = attribute.Key("gen_ai.response.model")
	timeInQueue        = attribute.Key("gen_ai.latency.time_in_queue")
	timeToFirstToken   = attribute.Key("gen_ai.latency.time_to_first_token")
	endToEnd           = attribute.Key("gen_ai.latency.e2e")
	timeInPrefill      = attribute.Key("gen_ai.latency.time_in_model_prefill")
	timeInDecode       = attribute.Key("gen_ai.latency.time_in_model_decode")
	timeInInference    = attribute.Key("gen_ai.latency.time_in_model_inference")
)

// Attributes of OpenTelemetry's conventions for servers.
const (
	httpRoute  = attribute.Key("http.route")
	httpStatus = attribute.Key("http.response.status_code")
	errorType  = attribute.Key("error.type")
)

// Events of llm_request, the phases of a choice, and their attributes.
const (
	eventQueued     = "queued"
	eventScheduled  = "scheduled"
	eventFirstToken = "first_token"
	eventPreempted  = "preempted"
	eventFinished   = "finished"

	finishReason = attribute.Key("finish_reason")
	choiceIndex  = attribute.Key("choice") // with several choices
)
