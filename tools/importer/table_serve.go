package importer

// Reasons that several flags share.
const (
	noClientTLS = no + "vapp asks clients for keys (serve.apiKeys), not for certificates"
	quietLogs   = no + "vapp logs requests where serve.logRequests says so, and never replies"
	contentForm = no + "vapp detects the format of content from the template"
	limitsOfOur = no + "vapp bounds headers itself, and serve.limits.maxBodyBytes bounds bodies"
	noCohere    = no + "vapp speaks OpenAI's protocol"
)

// serveFlags configure the HTTP server.
var serveFlags = []flag{
	{"--host", one, text("serve.host"), ""},
	{"--port", one, integer("serve.port"), ""},
	{"--api-key", many, apiKeys, ""},
	{"--tool-call-parser", one, text("parsers.toolCall"), ""},
	{"--reasoning-parser", one, text("parsers.reasoning"), ""},
	{"--enable-auto-tool-choice", boolean, yes("parsers.autoToolChoice"), ""},
	{"--exclude-tools-when-tool-choice-none", boolean, yes("parsers.excludeToolsWhenNone"), ""},
	{"--chat-template", one, chatTemplate, ""},
	{"--trust-request-chat-template", boolean, yes("parsers.trustRequestChatTemplate"), ""},
	{"--allowed-origins", one, jsonWords("serve.cors.allowedOrigins"), ""},
	{"--allowed-methods", one, jsonWords("serve.cors.allowedMethods"), ""},
	{"--allowed-headers", one, jsonWords("serve.cors.allowedHeaders"), ""},
	{"--allow-credentials", boolean, yes("serve.cors.allowCredentials"), ""},
	{"--max-logprobs", one, integer("serve.limits.maxLogprobs"), ""},
	{"--max-num-queued-reqs", one, integer("serve.limits.maxQueue"), ""},
	{"--shutdown-timeout", one, seconds("serve.drainTimeout"), ""},
	{"--enable-prompt-tokens-details", boolean, yes("serve.promptTokensDetails"), ""},
	{"--enable-force-include-usage", boolean, yes("serve.forceIncludeUsage"), ""},
	{"--enable-request-id-headers", boolean, yes("serve.requestIdHeaders"), ""},
	{"--disable-uvicorn-access-log", boolean, not("serve.accessLog"), ""},
	{"--disable-fastapi-docs", boolean, not("serve.docs"), ""},
	{"--ssl-keyfile", one, text("serve.tls.keyFile"), ""},
	{"--ssl-certfile", one, text("serve.tls.certFile"), ""},
	{"--enable-log-requests", boolean, yes("serve.logRequests"), ""},
	{"--disable-log-stats", boolean, quietStats, ""},
	{"--uvicorn-log-level", one, choice("log.level", logLevels), ""},
	{"--default-chat-template-kwargs", object, templateKwargs, ""},
	{"--config", one, configRefused, ""},

	{"--uds", one, nil, no + "vapp listens on TCP; bind serve.host to 127.0.0.1 and put a proxy before it"},
	{"--grpc", boolean, nil, no + "vapp speaks HTTP"},
	{"--ssl-ca-certs", one, nil, noClientTLS},
	{"--ssl-cert-reqs", one, nil, noClientTLS},
	{"--ssl-ciphers", one, nil, no + "vapp offers the ciphers that are safe today"},
	{"--enable-ssl-refresh", boolean, nil, no + "new contents of the files are always taken at once"},
	{"--root-path", one, nil, no + "a proxy that serves below a path takes it off itself"},
	{"--middleware", one, nil, noCode},
	{"--reasoning-parser-plugin", one, nil, noCode},
	{"--tool-parser-plugin", one, nil, noCode},
	{"--tool-server", one, nil, no + "clients run tools, vapp does not"},
	{"--enable-reasoning", boolean, nil, no + "parsers.reasoning is enough"},
	{"--chat-template-content-format", one, nil, contentForm},
	{"--chat-template-text-format", one, nil, contentForm},
	{"--response-role", one, nil, no + "replies have the role assistant"},
	{"--return-tokens-as-token-ids", boolean, nil, no + "a request asks for it: return_tokens_as_token_ids"},
	{"--disable-access-log-for-endpoints", one, nil, no + "serve.accessLog is on or off"},
	{"--disable-log-requests", boolean, nil, quietLogs},
	{"--enable-log-outputs", boolean, nil, quietLogs},
	{"--enable-log-deltas", boolean, nil, quietLogs},
	{"--max-log-len", one, nil, quietLogs},
	{"--log-config-file", one, nil, no + "log.level and log.format say what is written"},
	{"--log-error-stack", boolean, nil, no + "log.level and log.format say what is written"},
	{"--enable-server-load-tracking", boolean, nil, no + "GET /load always reports it"},
	{"--enable-per-request-metrics", boolean, nil, counters},
	{"--enable-tokenizer-info-endpoint", boolean, nil, no + "vapp does not return the tokenizer's settings"},
	{"--tokens-only", boolean, nil, no + "vapp serves all its routes"},
	{"--enable-offline-docs", boolean, nil, no + "vapp has no FastAPI pages"},
	{"--disable-frontend-multiprocessing", boolean, nil, oneEngine},
	{"--h11-max-incomplete-event-size", one, nil, limitsOfOur},
	{"--h11-max-header-count", one, nil, limitsOfOur},
	{"--fingerprint-mode", one, nil, no + "vapp sends no fingerprint"},
	{"--fingerprint-value", one, nil, no + "vapp sends no fingerprint"},
	{"--enable-flash-late-interaction", boolean, nil, wholePooling},
	{"--cohere-is-reasoning-model", boolean, nil, noCohere},
	{"--cohere-format", one, nil, noCohere},
}

// logLevels maps vLLM's log levels to vapp's.
var logLevels = map[string]string{
	"trace": "debug", "debug": "debug", "info": "info", "warning": "warn", "error": "error", "critical": "error",
}
