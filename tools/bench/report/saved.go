package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// Saved is a result read from a file of vapp or vLLM.
type Saved map[string]any

// remedy ends each error about a file.
const remedy = `make one with "vapp bench serve --save-result"`

// ParseSaved parses the results of a file: one object, several objects one after another
// (--append-result), or a list (a sweep). Errors have the position in the text and a remedy.
func ParseSaved(text []byte) ([]Saved, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	var out []Saved
	for {
		var raw json.RawMessage
		err := d.Decode(&raw)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: no result of a benchmark: %w; %s", place(text, d.InputOffset(), err), err, remedy)
		}
		list := []json.RawMessage{raw}
		if raw[0] == '[' {
			if err := json.Unmarshal(raw, &list); err != nil {
				return nil, err // cannot fail: raw is valid JSON
			}
		}
		for _, r := range list {
			s, err := parseSaved(r)
			if err != nil {
				return nil, fmt.Errorf("%s, result %d: %w; %s", place(text, d.InputOffset()-int64(len(raw)), nil), len(out)+1, err, remedy)
			}
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("1:1: no result in it; %s", remedy)
	}
	return out, nil
}

// place returns line:column of an offset, or of the offset of a syntax error.
func place(text []byte, offset int64, err error) string {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) && syntax.Offset > offset {
		offset = syntax.Offset - 1
	}
	before := text[:min(max(int(offset), 0), len(text))]
	line := bytes.Count(before, []byte("\n")) + 1
	return fmt.Sprintf("%d:%d", line, len(before)-bytes.LastIndexByte(before, '\n'))
}

func parseSaved(raw json.RawMessage) (Saved, error) {
	var s Saved
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		return nil, errors.New("no result of a benchmark: it is no object")
	}
	for _, key := range []string{"duration", "completed", "request_throughput"} {
		if x, ok := s.number(key); !ok || x < 0 {
			return nil, fmt.Errorf("no result of a benchmark: it has no %s", key)
		}
	}
	return s, nil
}

// number returns a finite number.
func (s Saved) number(key string) (float64, bool) {
	x, ok := s[key].(float64)
	return x, ok && !math.IsInf(x, 0) && !math.IsNaN(x)
}

// word returns a setting as text, "-" where it is missing.
func (s Saved) word(key string) string {
	switch v := s[key].(type) {
	case nil:
		return "-"
	case float64:
		return word(v)
	case string:
		return Printable(v)
	}
	return Printable(fmt.Sprint(s[key]))
}
