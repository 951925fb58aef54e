package anthropic

// errorTypes maps an HTTP status to Anthropic's error type; others are api_error.
var errorTypes = map[int]string{
	400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
	405: "invalid_request_error", 408: "timeout_error", 413: "request_too_large", 429: "rate_limit_error",
	501: "invalid_request_error", 503: "overloaded_error", 504: "timeout_error",
}

type errorBody struct {
	Type  string     `json:"type"`
	Error errorCause `json:"error"`
}

type errorCause struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// Error returns the body of an error.
func Error(status int, message string) []byte {
	kind, known := errorTypes[status]
	if !known {
		kind = "api_error"
	}
	return encode(errorBody{"error", errorCause{kind, message}})
}
