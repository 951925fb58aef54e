package front

import (
	"encoding/json"
	"strings"
	"testing"
)

// modelOf scans a text that comes in pieces of n bytes.
func modelOf(text string, n int) (string, state) {
	var s scan
	for len(text) > 0 {
		k := min(n, len(text))
		s.write([]byte(text[:k]))
		text = text[k:]
	}
	return s.found, s.state
}

func TestScan(t *testing.T) {
	for _, c := range []struct {
		text, want string
		state      state
	}{
		{`{"model":"a"}`, "a", isFound},
		{` { "messages" : [{"model":"b","content":"{\"model\":\"c\"}"}], "n":1,"x":true, "model" : "a/b c" , "z"`, "a/b c", isFound},
		{`{"metadata":{"model":"no"},"stop":["}","]"],"mo\u0064el":"\u00e9\"\\"}`, `é"\`, isFound},
		{`{"model":"","model":"b"}`, "", isFound},
		{`{"n":1}`, "", ended},
		{`{"n":"}"}`, "", ended},
		{`{}`, "", ended},
		{`[{"model":"a"}]`, "", ended},
		{`"model"`, "", ended},
		{`{"model":null}`, "", ended},
		{`{"model":5,"x":1}`, "", ended},
		{`{"model":["a"]}`, "", ended},
		{`{"model" "a"}`, "", ended},
		{`{model:"a"}`, "", ended},
		{`{"model":`, "", atValue},
		{`{"model":"a`, "", inString},
		{`{"a":[[[`, "", inValue},
		{``, "", atStart},
		{`{"model":"` + strings.Repeat("a", mostName) + `"}`, "\x00", isFound},
		{`{"` + strings.Repeat("a", 2*mostName) + `":1,"model":"a"}`, "a", isFound},
	} {
		for _, n := range []int{1, 2, 7, 1 << 20} {
			if got, st := modelOf(c.text, n); got != c.want || st != c.state {
				t.Errorf("%.60q in pieces of %d: %q, state %d, want %q, %d", c.text, n, got, st, c.want, c.state)
			}
		}
	}
}

// FuzzScan: the pieces of a text make no difference, and of a JSON object the scan finds what
// encoding/json finds.
func FuzzScan(f *testing.F) {
	for _, s := range []string{`{"model":"a"}`, `{"a":{"model":"x"},"b":["\\\"",1e5,null],"model":"\u0061"}`, `{"a":"}`, `[1]`} {
		f.Add(s, uint8(1))
	}
	f.Fuzz(func(t *testing.T, text string, n uint8) {
		whole, at := modelOf(text, len(text)+1)
		if got, st := modelOf(text, int(n)+1); got != whole || st != at {
			t.Fatalf("%q in pieces: %q, %d; whole: %q, %d", text, got, st, whole, at)
		}
		d := json.NewDecoder(strings.NewReader(text))
		if !json.Valid([]byte(text)) {
			return
		}
		if open, _ := d.Token(); open != json.Delim('{') {
			if at == isFound {
				t.Fatalf("%q is no object, and its model is %q", text, whole)
			}
			return
		}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return
			}
			var value any
			if d.Decode(&value) != nil {
				return
			}
			if model, is := value.(string); is && name == "model" && len(model) < mostName/6 {
				if at != isFound || whole != model {
					t.Fatalf("%q: %q, state %d, want %q", text, whole, at, model)
				}
				return
			}
		}
		if at == isFound && whole != "\x00" {
			t.Fatalf("%q has no model, and %q was found", text, whole)
		}
	})
}
