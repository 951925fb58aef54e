package openai

import "vapp.dev/appliance/chat"

// Stream writes a reply as server-sent events; each method appends to buf.
type Stream interface {
	// Begin writes the records before the first token.
	Begin(buf []byte) []byte
	// Add writes one delta; nothing if the delta is empty in this protocol.
	Add(buf []byte, d chat.Delta) []byte
	// End writes the last records.
	End(buf []byte) []byte
}

// done is the last record of every stream.
const done = "data: [DONE]\n\n"

// record appends one server-sent event with v as JSON.
func record(buf []byte, v any) []byte {
	return raw(buf, encode(v))
}

func raw(buf, json []byte) []byte {
	buf = append(buf, "data: "...)
	buf = append(buf, json...)
	return append(buf, '\n', '\n')
}

// StreamError appends the records of an error that ends a stream.
func StreamError(buf []byte, e *chat.Error) []byte {
	return append(raw(buf, Error(e)), done...)
}
