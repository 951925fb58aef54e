package openai

import "vapp.dev/appliance/chat"

// Stream writes a reply as server-sent records; each method appends to buf.
type Stream interface {
	// Begin is what comes before any token.
	Begin(buf []byte) []byte
	// Add writes one delta, or nothing when it says nothing on the wire.
	Add(buf []byte, d chat.Delta) []byte
	// End closes the stream.
	End(buf []byte) []byte
}

// done is the last record of every stream.
const done = "data: [DONE]\n\n"

// record appends one server-sent record.
func record(buf []byte, v any) []byte {
	return raw(buf, encode(v))
}

func raw(buf, json []byte) []byte {
	buf = append(buf, "data: "...)
	buf = append(buf, json...)
	return append(buf, '\n', '\n')
}

// Broken ends a stream that had begun when an error came.
func Broken(buf []byte, e *chat.Error) []byte {
	return append(raw(buf, Error(e)), done...)
}
