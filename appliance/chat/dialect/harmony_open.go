package dialect

import "strings"

// HarmonyOpen is the unfinished message at the end of a prompt, which the reply continues.
type HarmonyOpen struct {
	// Header is the message's header from <|start|> on, without <|message|>. "": the last
	// message is finished, and the reply begins a new one.
	Header string
	InBody bool // the header is complete; the reply continues the body
}

// OpenHarmony returns the unfinished message at the end of a prompt in harmony.
func OpenHarmony(prompt string) HarmonyOpen {
	at := strings.LastIndex(prompt, harmonyStart)
	if at < 0 {
		return HarmonyOpen{}
	}
	header, body, inBody := strings.Cut(prompt[at:], harmonyMessage)
	if strings.Contains(header+body, harmonyEnd) {
		return HarmonyOpen{}
	}
	return HarmonyOpen{Header: header, InBody: inBody}
}

// Thought reports whether the reply continues a body that is parsed as reasoning.
func (o HarmonyOpen) Thought() bool { return o.bodyOf(toReasoning) }

// Shown reports whether the reply continues a body that the client gets as content.
func (o HarmonyOpen) Shown() bool { return o.bodyOf(toContent) }

func (o HarmonyOpen) bodyOf(k harmonyKind) bool {
	h := parseHeader(o.Header)
	return o.InBody && h.kind() == k
}

// HarmonyHeader holds the spellings of a header after its role: a spelling consists of one
// text of each element.
type HarmonyHeader [][]string

// harmonyTypes holds the spellings of the content type, which may be absent.
var harmonyTypes = []string{"", " json", " " + harmonyConstrain + "json", harmonyConstrain + "json"}

// HarmonyHeaderOf returns the spellings of the header of an assistant's message on a
// channel: analysis, commentary or final.
func HarmonyHeaderOf(channel string) HarmonyHeader {
	return HarmonyHeader{{harmonyChannel}, {channel}, harmonyTypes, {harmonyMessage}}
}

// HarmonyCallHeaders returns the spellings of the header of a function call. The recipient
// is before or after the channel, which may be any.
func HarmonyCallHeaders(function string) []HarmonyHeader {
	channels, to := []string{"commentary", "analysis", "final"}, "to=functions."+function
	return []HarmonyHeader{
		{{harmonyChannel}, channels, {" " + to}, harmonyTypes, {harmonyMessage}},
		{{" ", ""}, {to}, {"", " "}, {harmonyChannel}, channels, harmonyTypes, {harmonyMessage}},
	}
}

// Rest returns the rest of each spelling of an assistant's message that begins with the
// unfinished header open.
func (h HarmonyHeader) Rest(open string) []string {
	out := []string{HarmonyAssistant}
	for _, texts := range h {
		var longer []string
		for _, before := range out {
			for _, t := range texts {
				if full := before + t; strings.HasPrefix(full, open) || strings.HasPrefix(open, full) {
					longer = append(longer, full)
				}
			}
		}
		out = longer
	}
	var rest []string
	for _, full := range out {
		if r, is := strings.CutPrefix(full, open); is {
			rest = append(rest, r)
		}
	}
	return rest
}

// The texts around the messages of a reply in harmony.
const (
	HarmonyAssistant = harmonyStart + "assistant"
	HarmonyEnd       = harmonyEnd
)

// HarmonyMarkers returns the markers of harmony. A body contains none of them.
func HarmonyMarkers() []string { return harmonyMarkers }
