package importer

import (
	"errors"
	"strings"
	"testing"
)

// TestKinds checks that problems have a kind, a place and a remedy.
func TestKinds(t *testing.T) {
	for line, want := range map[string]struct {
		kind Kind
		at   Place
	}{
		"redis-server -m x":                     {NotFound, Place{}},
		"vllm serve x 'y":                       {Syntax, Place{}},
		"vllm serve x --frob 1":                 {Unknown, Place{Arg: 4}},
		"vllm serve x --port y":                 {Invalid, Place{Arg: 4}},
		"vllm serve x --port 70000":             {Invalid, Place{Arg: 4}},
		"vllm serve x --port":                   {Missing, Place{Arg: 4}},
		"vllm serve --port 1":                   {Missing, Place{}},
		"vllm serve $X":                         {Unresolved, Place{Arg: 3}},
		"vllm serve x --task transcription":     {Refused, Place{Arg: 4}},
		"bash -c 'vllm serve x --runner draft'": {Refused, Place{Arg: 4}},
	} {
		_, err := argsText([]string{line}, Options{})
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if e.Kind() != want.kind || e.List[0].Place != want.at {
			t.Errorf("%s: %s at %v, want %s at %v", line, e.Kind(), e.List[0].Place, want.kind, want.at)
		}
	}
}

// TestWordsAreLiteral checks that arguments, which a shell has expanded, are not expanded again.
func TestWordsAreLiteral(t *testing.T) {
	text, err := argsText([]string{"vllm", "serve", "org/model", "--chat-template", "{{ $x }} 'a' \\n"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if p := loads(t, text); p.Parsers.ChatTemplate != `{{ $x }} 'a' \n` {
		t.Errorf("%q", p.Parsers.ChatTemplate)
	}
}

// TestName checks that the schema accepts every derived name.
func TestName(t *testing.T) {
	for model, want := range map[string]string{
		"org/Model-7B": "model-7b", "/": "imported", "...": "imported", "ä/ö": "imported", "x/" + strings.Repeat("y", 200): strings.Repeat("y", 128),
		"m/a b": "a-b", "./x.GGUF": "x",
	} {
		text, err := argsText([]string{"vllm", "serve", model}, Options{})
		if err != nil {
			t.Errorf("%s: %v", model, err)
			continue
		}
		if p := loads(t, text); p.Name != want {
			t.Errorf("%s: %s, want %s", model, p.Name, want)
		}
	}
	_, err := argsText([]string{"vllm", "serve", "x"}, Options{Name: "two words"})
	if err == nil || !strings.HasPrefix(err.Error(), "the profile's name: ") {
		t.Errorf("a name with a blank: %v", err)
	}
}

// TestSizes checks that numbers are parsed as by vLLM.
func TestSizes(t *testing.T) {
	for text, want := range map[string]string{
		"1k": "1000", "1K": "1024", "25.6k": "25600", "2M": "2097152", "-1": "-1", "8192": "8192", "1e3": "", "K": "", "": "", "0x10": "", "1_000": "",
	} {
		got, ok := wholeNumber(text)
		if ok != (want != "") || ok && got != want {
			t.Errorf("wholeNumber(%q) = %q, %v; want %q", text, got, ok, want)
		}
	}
	for text, want := range map[string]string{
		".85": "0.85", "0.9": "0.9", "1": "1", "1e-2": "0.01", "0x1p3": "", "1/2": "", "inf": "", "nan": "", "1e999999999": "", "": "", "9e": "",
	} {
		got, ok := decimal(text)
		if ok != (want != "") || ok && got != want {
			t.Errorf("decimal(%q) = %q, %v; want %q", text, got, ok, want)
		}
	}
	for text, want := range map[string]int64{"4": 4 << 30, "0.5": 1 << 29, "0": 0, "-1": -1, "x": -1, "1e30": -1} {
		if got, ok := sizeOf(text, 1<<30); ok != (want >= 0) || ok && got != want {
			t.Errorf("sizeOf(%q) = %d, %v; want %d", text, got, ok, want)
		}
	}
}
