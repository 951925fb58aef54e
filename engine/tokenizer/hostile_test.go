//go:build cgo

package tokenizer

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// TestHostileTokenizers checks that every broken file gives a one-line typed error.
func TestHostileTokenizers(t *testing.T) {
	whole, err := os.ReadFile("testdata/bytelevel.tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	model := func(m string) string { return `{"version":"1.0","added_tokens":[],"model":` + m + `}` }
	bpe := func(vocab, merges string) string {
		return model(`{"type":"BPE","vocab":{` + vocab + `},"merges":[` + merges + `]}`)
	}
	deep := strings.Repeat(`{"type":"Sequence","normalizers":[`, 100_000)
	cases := map[string]string{
		"empty": "", "null": "null", "no model": "{}", "list": "[]", "not JSON": "\x00\xff", "half": string(whole[:len(whole)/2]),
		"cut": string(whole[:len(whole)-2]), "tail": string(whole) + "x", "deep": strings.Repeat("[", 1_000_000),
		"deep normalizer": `{"normalizer":` + deep, "kind": model(`{"type":"GPT9","vocab":{}}`),
		"2^60": bpe(`"a":1152921504606846976`, ""), "below zero": bpe(`"a":-1`, ""), "2^32-1": bpe(`"a":4294967295`, ""),
		"2^31": bpe(`"a":0,"b":2147483648`, ""), "empty vocabulary": bpe("", ""), "float": bpe(`"a":0.5`, ""),
		"merge of nothing": bpe(`"a":0`, `"a b"`), "merge of three": bpe(`"a":0,"b":1,"ab":2`, `"a b c"`), "merge without result": bpe(`"a":0,"b":1`, `"a b"`),
		"version":    `{"version":"99","model":{"type":"BPE","vocab":{"a":0},"merges":[]}}`,
		"bad regex":  strings.Replace(bpe(`"a":0`, ""), `"model"`, `"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(((("},"behavior":"Isolated","invert":false},"model"`, 1),
		"unigram":    model(`{"type":"Unigram","unk_id":9,"vocab":[["a",0.0]],"byte_fallback":false}`),
		"charsmap":   strings.Replace(bpe(`"a":0`, ""), `"model"`, `"normalizer":{"type":"Precompiled","precompiled_charsmap":"/////w=="},"model"`, 1),
		"wrong type": model(`{"type":"BPE","vocab":[1,2,3],"merges":{}}`),
	}
	for name, json := range cases {
		t.Run(name, func(t *testing.T) {
			tok, err := Load([]byte(json), LoadOptions{})
			var e *Error
			if err == nil {
				tok.Close()
			}
			if !errors.As(err, &e) || e.Kind != KindTokenizer && e.Kind != KindPanic || strings.Contains(err.Error(), "\n") || len(err.Error()) > 700 {
				t.Errorf("got %v, want one line of KindTokenizer or KindPanic", err)
			}
		})
	}
}

// TestPostProcessorWithoutToken checks that Encode reports a post-processor that names a missing
// token.
func TestPostProcessorWithoutToken(t *testing.T) {
	tok := loaded(t, []byte(`{"version":"1.0","added_tokens":[],"post_processor":{"type":"TemplateProcessing",
		"single":[{"SpecialToken":{"id":"x","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{}},
		"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}`))
	ids, err := tok.Encode("a", true)
	var e *Error
	if !errors.As(err, &e) || e.Kind != KindTokenizer && e.Kind != KindPanic {
		t.Errorf("got %v, %v", ids, err)
	}
	if ids, err := tok.Encode("a", false); err != nil || len(ids) != 1 {
		t.Errorf("without special tokens: %v, %v", ids, err)
	}
}

// TestHostileTemplates runs templates that would exhaust memory, stack or time if only their steps
// were limited.
func TestHostileTemplates(t *testing.T) {
	r := strings.Repeat
	grow := func(body string) string {
		return "{% set ns = namespace(s='x' * 10000, l=[1], v=0, w=0) %}{% for i in range(60000) %}" + body + "{% endfor %}"
	}
	nested := grow("{% if i < 30000 %}{% set ns.v = [ns.v] %}{% set ns.w = [ns.w] %}{% endif %}")
	for name, c := range map[string]struct {
		source string
		kind   Kind // 0: no error
	}{
		"concat":       {grow("{% set ns.s = ns.s ~ ns.s %}"), KindMemory},
		"add":          {grow("{% set ns.s = ns.s + ns.s %}"), KindMemory},
		"times":        {grow("{% set ns.s = ns.s * 3 %}"), KindMemory},
		"add lists":    {grow("{% set ns.l = ns.l + ns.l + [1] %}"), KindMemory},
		"times lists":  {"{{ ([1] * 1000 * i * i)|length }}", KindMemory},
		"capture":      {grow("{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}"), KindMemory},
		"raw":          {"{% set x %}{% for i in range(99000) %}" + r("x", 2000) + "{% endfor %}{% endset %}", KindMemory},
		"replace":      {grow("{% set ns.s = ns.s|replace('x', ns.s) %}"), KindMemory},
		"replaced":     {grow("{% set ns.s = ns.s.replace('x', ns.s) %}"), KindMemory},
		"join":         {grow("{% set ns.s = range(90000)|join(ns.s) %}"), KindMemory},
		"joined":       {grow("{% set ns.s = ns.s.join(ns.s) %}"), KindMemory},
		"format":       {grow("{% set ns.s = '{0}{0}{0}'.format(ns.s) %}"), KindMemory},
		"width":        {"{{ '%999999999d' % 1 }}", KindTemplate},
		"indent":       {grow("{% set ns.s = (ns.s|replace('x', '\n'))|indent(9000, blank=true) %}"), KindMemory},
		"keep":         {grow("{% set ns.l = [ns.l, ns.s ~ i] %}"), KindMemory},
		"tojson":       {grow("{% set ns.s = [ns.s, ns.s]|tojson %}"), KindMemory},
		"map":          {grow("{% if ns.s|length < 4000000 %}{% set ns.s = ns.s ~ ns.s %}{% else %}{% set x = ns.s|map('upper')|list %}{% endif %}"), KindMemory},
		"fill":         {"{{ [1]|batch(99999999999, 0)|list|length }}", KindMemory},
		"constant":     {"{{ ('x' * 90000000)|length }}", KindTemplate},
		"lists":        {grow("{% set ns.v = [ns.v] %}{% set ns.w = [[ns.w]] %}"), KindMemory},
		"dicts":        {grow("{% set ns.v = dict(a=ns.v) %}{% set ns.w = {'a': ns.w} %}"), KindMemory},
		"drop":         {nested, 0},
		"equal":        {nested + "{{ ns.v == ns.w }}", 0},
		"upper":        {nested + "{% set x = ns.v|upper %}", 0},
		"print":        {nested + "{{ ns.v }}", KindTemplate},
		"json":         {nested + "{{ ns.v|tojson }}", KindTemplate},
		"pprint":       {nested + "{{ ns.v|pprint }}", KindTemplate},
		"cycle":        {"{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", KindTemplate},
		"list cycle":   {"{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns }}", KindTemplate},
		"macro":        {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", KindTemplate},
		"block":        {"{% block a %}{{ self.a() }}{% endblock %}", KindTemplate},
		"include":      {"{% include 'chat' %}", KindTemplate},
		"loop":         {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", KindTemplate},
		"steps":        {"{% for i in range(99000) %}{% for i in range(99000) %}{% endfor %}{% endfor %}", KindSteps},
		"output":       {"{% for i in range(99000) %}" + r("x", 100) + "{% endfor %}", KindOutput},
		"attributes":   {"{{ a" + r(".b", 500_000) + " }}", KindTemplate},
		"sum":          {"{{ a" + r("+a", 500_000) + " }}", KindTemplate},
		"filters":      {"{{ a" + r("|e", 500_000) + " }}", KindTemplate},
		"not":          {"{{ " + r("not ", 200_000) + "a }}", KindTemplate},
		"minus":        {"{{ " + r("-", 900_000) + "a }}", KindTemplate},
		"parentheses":  {"{{ " + r("(", 900_000), KindTemplate},
		"elif":         {"{% if a %}" + r("{% elif a %}", 80_000) + "{% endif %}", KindTemplate},
		"ifs":          {r("{% if a %}", 100_000), KindTemplate},
		"size":         {r("x", 1<<20+1), KindTemplate},
		"longest sum":  {"{{ i" + r("+i", 2400) + " }}", 0},
		"longest elif": {"{% if a %}" + r("{% elif a %}", 990) + "{% endif %}", 0},
	} {
		t.Run(name, func(t *testing.T) {
			limits := Limits{Steps: 2_000_000, MemoryBytes: 16 << 20, OutputBytes: 1 << 20, Time: time.Minute}
			tmpl, err := NewTemplate(c.source, limits)
			if err == nil {
				defer tmpl.Close()
				_, err = tmpl.Render(map[string]any{"i": 100_000})
			}
			var e *TemplateError
			switch {
			case c.kind == 0 && err != nil:
				t.Errorf("got %v, want nil", err)
			case c.kind != 0 && (!errors.As(err, &e) || e.Kind != c.kind || strings.Contains(err.Error(), "\n")):
				t.Errorf("got %v, want kind %d", err, c.kind)
			}
		})
	}
}

func TestTemplateTime(t *testing.T) {
	tmpl, err := NewTemplate("{% for i in range(99000) %}{% set x = (range(9000)|list)|sort %}{% endfor %}", Limits{Time: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer tmpl.Close()
	_, err = tmpl.Render([]byte("{}"))
	var e *TemplateError
	if !errors.As(err, &e) || e.Kind != KindTime {
		t.Errorf("got %v, want KindTime", err)
	}
}
