package openai

import (
	"encoding/json"
	"net/http"

	"vapp.dev/appliance/chat"
)

// ResponseNotFound returns the status and body of an error for an unknown id.
func ResponseNotFound(id string) (int, []byte) {
	return http.StatusNotFound, ErrorOf(http.StatusNotFound, "invalid_request_error", "response_id", "Response with id '"+id+"' not found.")
}

// InterruptedResponse returns the body of a response that was running when the server
// stopped, with status failed.
func InterruptedResponse(body json.RawMessage) json.RawMessage {
	var o map[string]json.RawMessage
	if json.Unmarshal(body, &o) != nil {
		o = map[string]json.RawMessage{}
	}
	o["status"] = encode("failed")
	o["error"] = encode(responseError{"server_error", "The server was stopped before the reply had ended."})
	return encode(o)
}

// responseParams maps parameters of chats to those of this protocol.
var responseParams = map[string]string{"messages": "input", "max_tokens": "max_output_tokens"}

// ResponsesError returns the body of an error of the responses routes, with this
// protocol's parameter names.
func ResponsesError(e *chat.Error) []byte {
	if e.Kind == chat.TooLong {
		return ErrorOf(http.StatusBadRequest, "invalid_request_error", "input", e.Message)
	}
	if own, is := responseParams[e.Param]; is {
		renamed := *e
		renamed.Param, e = own, &renamed
	}
	return Error(e)
}

// ResponsesStreamError returns the event of an error that ends a stream but does not
// come from the reply.
func ResponsesStreamError(e *chat.Error) []byte {
	var whole ErrorBody
	_ = json.Unmarshal(ResponsesError(e), &whole) // no error: this package wrote the body
	return append(append([]byte("event: error\ndata: "), encode(struct {
		Type    string  `json:"type"`
		Code    string  `json:"code"`
		Message string  `json:"message"`
		Param   *string `json:"param"`
	}{"error", whole.Error.Type, whole.Error.Message, whole.Error.Param})...), '\n', '\n')
}
