package foreign

// Reasons that several flags share.
const (
	noClientTLS = no + "vapp asks clients for keys (serve.apiKeys), not for certificates"
	quietLogs   = no + "vapp logs requests where serve.logRequests says so, and never replies"
	contentForm = no + "vapp detects the format of content from the template"
	limitsOfOur = no + "vapp bounds headers itself, and serve.limits.maxBodyBytes bounds bodies"
	noCohere    = no + "vapp speaks the protocols of OpenAI and Anthropic"
)

// vllmServeFlags configure the HTTP server.
var vllmServeFlags = []Flag{
	{"--host", One, "serve.host", ""},
	{"--port", One, "serve.port", ""},
	{"--api-key", Many, "serve.apiKeys", ""},
	{"--tool-call-parser", One, "parsers.toolCall", ""},
	{"--reasoning-parser", One, "parsers.reasoning", ""},
	{"--enable-auto-tool-choice", Boolean, "parsers.autoToolChoice", ""},
	{"--exclude-tools-when-tool-choice-none", Boolean, "parsers.excludeToolsWhenNone", ""},
	{"--chat-template", One, "parsers.chatTemplate", ""},
	{"--trust-request-chat-template", Boolean, "parsers.trustRequestChatTemplate", ""},
	{"--allowed-origins", One, "serve.cors.allowedOrigins", ""},
	{"--allowed-methods", One, "serve.cors.allowedMethods", ""},
	{"--allowed-headers", One, "serve.cors.allowedHeaders", ""},
	{"--allow-credentials", Boolean, "serve.cors.allowCredentials", ""},
	{"--max-logprobs", One, "serve.limits.maxLogprobs", ""},
	{"--max-num-queued-reqs", One, "serve.limits.maxQueue", ""},
	{"--shutdown-timeout", One, "serve.drainTimeout", ""},
	{"--enable-prompt-tokens-details", Boolean, "serve.promptTokensDetails", ""},
	{"--enable-force-include-usage", Boolean, "serve.forceIncludeUsage", ""},
	{"--enable-request-id-headers", Boolean, "serve.requestIdHeaders", ""},
	{"--disable-uvicorn-access-log", Boolean, "serve.accessLog", ""},
	{"--disable-fastapi-docs", Boolean, "serve.docs", ""},
	{"--ssl-keyfile", One, "serve.tls.keyFile", ""},
	{"--ssl-certfile", One, "serve.tls.certFile", ""},
	{"--enable-log-requests", Boolean, "serve.logRequests", ""},
	{"--disable-log-stats", Boolean, "serve.statsInterval", ""},
	{"--uvicorn-log-level", One, "log.level", ""},
	{"--default-chat-template-kwargs", Object, "parsers.chatTemplateKwargs", ""},
	{"--config", One, "", no + "the profile is the configuration"},

	{"--uds", One, "", no + "vapp listens on TCP; bind serve.host to 127.0.0.1 and put a proxy before it"},
	{"--grpc", Boolean, "", no + "vapp speaks HTTP"},
	{"--ssl-ca-certs", One, "", noClientTLS},
	{"--ssl-cert-reqs", One, "", noClientTLS},
	{"--ssl-ciphers", One, "", no + "vapp offers the ciphers that are safe today"},
	{"--enable-ssl-refresh", Boolean, "", no + "new contents of the files are always taken at once"},
	{"--root-path", One, "", no + "a proxy that serves below a path takes it off itself"},
	{"--middleware", One, "", noCode},
	{"--reasoning-parser-plugin", One, "", noCode},
	{"--tool-parser-plugin", One, "", noCode},
	{"--tool-server", One, "", no + "clients run tools, vapp does not"},
	{"--enable-reasoning", Boolean, "", no + "parsers.reasoning is enough"},
	{"--chat-template-content-format", One, "", contentForm},
	{"--chat-template-text-format", One, "", contentForm},
	{"--response-role", One, "", no + "replies have the role assistant"},
	{"--return-tokens-as-token-ids", Boolean, "", no + "a request asks for it: return_tokens_as_token_ids"},
	{"--disable-access-log-for-endpoints", One, "", no + "serve.accessLog is on or off"},
	{"--disable-log-requests", Boolean, "", quietLogs},
	{"--enable-log-outputs", Boolean, "", quietLogs},
	{"--enable-log-deltas", Boolean, "", quietLogs},
	{"--max-log-len", One, "", quietLogs},
	{"--log-config-file", One, "", no + "log.level and log.format say what is written"},
	{"--log-error-stack", Boolean, "", no + "log.level and log.format say what is written"},
	{"--enable-server-load-tracking", Boolean, "", no + "GET /load always reports it"},
	{"--enable-per-request-metrics", Boolean, "", counters},
	{"--enable-tokenizer-info-endpoint", Boolean, "", no + "vapp does not return the tokenizer's settings"},
	{"--tokens-only", Boolean, "", no + "vapp serves all its routes"},
	{"--enable-offline-docs", Boolean, "", no + "vapp has no FastAPI pages"},
	{"--disable-frontend-multiprocessing", Boolean, "", oneEngine},
	{"--h11-max-incomplete-event-size", One, "", limitsOfOur},
	{"--h11-max-header-count", One, "", limitsOfOur},
	{"--fingerprint-mode", One, "", no + "vapp sends no fingerprint"},
	{"--fingerprint-value", One, "", no + "vapp sends no fingerprint"},
	{"--enable-flash-late-interaction", Boolean, "", wholePooling},
	{"--cohere-is-reasoning-model", Boolean, "", noCohere},
	{"--cohere-format", One, "", noCohere},
}
