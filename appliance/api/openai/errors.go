package openai

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"

	"vapp.dev/appliance/chat"
)

// ErrorBody is the body of an error. All four keys are always present.
type ErrorBody struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    int     `json:"code"`
	} `json:"error"`
}

// statuses maps a Kind to its HTTP status and the type in the body.
var statuses = map[chat.Kind]struct {
	status int
	kind   string
}{
	chat.Internal:     {http.StatusInternalServerError, "InternalServerError"},
	chat.Malformed:    {http.StatusBadRequest, "Bad Request"},
	chat.Invalid:      {http.StatusBadRequest, "BadRequestError"},
	chat.TooLong:      {http.StatusBadRequest, "BadRequestError"},
	chat.NotFound:     {http.StatusNotFound, "NotFoundError"},
	chat.Unauthorized: {http.StatusUnauthorized, "AuthenticationError"},
	chat.Unsupported:  {http.StatusNotImplemented, "NotImplementedError"},
	chat.Limited:      {http.StatusTooManyRequests, "RateLimitError"},
	chat.Overloaded:   {http.StatusServiceUnavailable, "ServiceUnavailableError"},
	chat.Unavailable:  {http.StatusServiceUnavailable, "ServiceUnavailableError"},
	chat.Gone:         {StatusClientClosed, "ClientClosedRequest"},

	chat.Unprocessable: {http.StatusUnprocessableEntity, "UnprocessableEntityError"},
	chat.Unreachable:   {http.StatusInternalServerError, "InternalServerError"},

	chat.InvalidUserInput: {http.StatusBadRequest, "InvalidUserInput"},
}

// StatusClientClosed is the status of a request whose client closed the connection, or
// its side of it.
const StatusClientClosed = 499

// Status returns the HTTP status of an error.
func Status(e *chat.Error) int { return statuses[e.Kind].status }

// ErrorType returns the type of an error in its body.
func ErrorType(e *chat.Error) string { return statuses[e.Kind].kind }

// Error returns the body of an error. It contains the message but not the cause.
func Error(e *chat.Error) []byte {
	s := statuses[e.Kind]
	return ErrorOf(s.status, s.kind, e.Param, e.Message)
}

// addresses matches memory addresses as Go and Python print them.
var addresses = regexp.MustCompile(` at 0x[0-9a-fA-F]+>|0xc[0-9a-f]{9}`)

// ErrorOf returns the body of an error without a Kind, such as 404 and 405.
func ErrorOf(status int, kind, param, message string) []byte {
	var b ErrorBody
	b.Error.Message = addresses.ReplaceAllString(message, ">")
	b.Error.Type, b.Error.Code = kind, status
	if param != "" {
		b.Error.Param = &param
	}
	return encode(b)
}

// encode returns v as JSON without escaping HTML. The types of this package cannot
// fail to encode.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("openai: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}
