package openai

import (
	"encoding/json"
	"net/http"

	"vapp.dev/appliance/chat"
)

// ResponseNotFound is the body of an error about an id that is not stored.
func ResponseNotFound(id string) (int, []byte) {
	return http.StatusNotFound, ErrorOf(http.StatusNotFound, "invalid_request_error", "response_id", "Response with id '"+id+"' not found.")
}

// ResponseOrphan is a response that was running when the server ended, as JSON.
func ResponseOrphan(body json.RawMessage) json.RawMessage {
	var o map[string]json.RawMessage
	if json.Unmarshal(body, &o) != nil {
		o = map[string]json.RawMessage{}
	}
	o["status"] = encode("failed")
	o["error"] = encode(responseError{"server_error", "The server was stopped before the reply had ended."})
	return encode(o)
}

// responseParams are what this protocol calls what chats call otherwise.
var responseParams = map[string]string{"messages": "input", "max_tokens": "max_output_tokens"}

// ResponsesError is the body of an error of these routes: one about the prompt's
// length is about input.
func ResponsesError(e *chat.Error) []byte {
	if e.Kind == chat.TooLong {
		return ErrorOf(http.StatusBadRequest, "invalid_request_error", "input", e.Message)
	}
	if own, is := responseParams[e.Param]; is {
		told := *e
		told.Param, e = own, &told
	}
	return Error(e)
}

// ResponsesBroken ends a stream that had begun when an error came from outside the
// reply.
func ResponsesBroken(e *chat.Error) []byte {
	var whole ErrorBody
	_ = json.Unmarshal(ResponsesError(e), &whole) // what this package has written
	return append(append([]byte("event: error\ndata: "), encode(struct {
		Type    string  `json:"type"`
		Code    string  `json:"code"`
		Message string  `json:"message"`
		Param   *string `json:"param"`
	}{"error", whole.Error.Type, whole.Error.Message, whole.Error.Param})...), '\n', '\n')
}
