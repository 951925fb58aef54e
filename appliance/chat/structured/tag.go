package structured

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// tagFormat is a part of a structural tag. Type selects the fields that apply; the comment
// of a field names the types that use it.
type tagFormat struct {
	Type      string          `json:"type"`
	Value     string          `json:"value"`       // const_string
	Schema    json.RawMessage `json:"json_schema"` // json_schema, qwen_xml_parameter
	Pattern   string          `json:"pattern"`     // regex
	Grammar   string          `json:"grammar"`     // grammar
	Elements  []*tagFormat    `json:"elements"`    // sequence, or
	Begin     string          `json:"begin"`       // tag
	Content   *tagFormat      `json:"content"`
	End       json.RawMessage `json:"end"`      // a string, or a list of alternative strings
	Triggers  []string        `json:"triggers"` // triggered_tags
	Tags      []*tagFormat    `json:"tags"`     // triggered_tags, tags_with_separator
	Separator string          `json:"separator"`
	Excludes  []string        `json:"excludes"` // any_text, triggered_tags: strings that must not occur
	AtLeast   bool            `json:"at_least_one"`
	First     bool            `json:"stop_after_first"`
}

// structuralTag is a structural tag in either form: {"structures": [{"begin", "schema",
// "end"}, …], "triggers": […]} of old vLLM releases, or {"format": …}.
type structuralTag struct {
	Structures []struct {
		Begin  string          `json:"begin"`
		Schema json.RawMessage `json:"schema"`
		End    string          `json:"end"`
	} `json:"structures"`
	Triggers []string   `json:"triggers"`
	Format   *tagFormat `json:"format"`
}

// maxTags bounds the parts of a structural tag.
const maxTags = 512

// TagSource returns the Lark grammar of a structural tag. tokens maps the markers that the
// vocabulary has as one special token to their ids; a marker in a text of the tag stands
// for its token. tokens may be nil if the tag is only checked.
func TagSource(raw json.RawMessage, tokens map[string]int32) (string, error) {
	var t structuralTag
	if err := json.Unmarshal(raw, &t); err != nil {
		return "", fmt.Errorf(`a structural tag is an object with "format", or with "structures" and "triggers": %s`, oneLine(err))
	}
	f := t.Format
	if f == nil {
		switch {
		case len(t.Structures) == 0 || len(t.Triggers) == 0:
			return "", errors.New(`a structural tag needs "format", or at least one of "structures" and of "triggers"`)
		case len(t.Structures) > maxTags:
			return "", fmt.Errorf("a structural tag has at most %d parts", maxTags)
		}
		f = &tagFormat{Type: "triggered_tags", Triggers: t.Triggers}
		for _, s := range t.Structures {
			end, err := json.Marshal(s.End)
			if err != nil {
				return "", err
			}
			f.Tags = append(f.Tags, &tagFormat{Type: "tag", Begin: s.Begin, Content: &tagFormat{Type: "json_schema", Schema: s.Schema}, End: end})
		}
	}
	return tagGrammar(f, tokens)
}

// tagGrammar returns the Lark grammar of a format.
func tagGrammar(f *tagFormat, tokens map[string]int32) (string, error) {
	w := &tagWriter{tokens: tokens}
	start, _ := w.expr(f, place{last: true})
	if w.err != nil {
		return "", w.err
	}
	return "start: " + start + "\n" + w.rules.String(), nil
}

// oneLine returns the text of err without line ends.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", " ") }

// ends returns the alternative end strings of a tag.
func (f *tagFormat) ends() ([]string, error) {
	var one string
	var many []string
	switch {
	case len(f.End) == 0:
		return []string{""}, nil
	case json.Unmarshal(f.End, &one) == nil:
		return []string{one}, nil
	case json.Unmarshal(f.End, &many) == nil && len(many) > 0:
		return many, nil
	}
	return nil, fmt.Errorf(`the "end" of the tag %q must be a string or a list of strings`, f.Begin)
}

// prefix returns the fixed text that a format begins with, "" if there is none.
func (f *tagFormat) prefix() string {
	switch f.Type {
	case "const_string":
		return f.Value
	case "tag":
		return f.Begin
	case "sequence":
		if len(f.Elements) > 0 && f.Elements[0] != nil {
			return f.Elements[0].prefix()
		}
	}
	return ""
}

// withoutPrefix returns f without its prefix.
func (f *tagFormat) withoutPrefix() *tagFormat {
	out := *f
	switch f.Type {
	case "const_string":
		out.Value = ""
	case "tag":
		out.Begin = ""
	case "sequence":
		out.Elements = slices.Clone(f.Elements)
		out.Elements[0] = f.Elements[0].withoutPrefix()
	}
	return &out
}

// larkString returns s as a quoted string of a Lark grammar.
func larkString(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string
	return strings.ReplaceAll(strings.TrimSpace(b.String()), "\x7f", `\u007f`)
}
