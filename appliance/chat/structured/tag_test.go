//go:build cgo

package structured

import (
	"encoding/json"
	"strings"
	"testing"

	"vapp.dev/appliance/chat/structured/structuredtest"
	"vapp.dev/engine/grammar"
	"vapp.dev/engine/tokenizer"
)

// accepts is a source with texts that its grammar accepts (good) and refuses (bad).
type accepts struct {
	source    string
	good, bad []string
}

// check compiles the Lark grammar of c and compares.
func (c accepts) check(t *testing.T, tok *tokenizer.Tokenizer, lark string) {
	t.Helper()
	g, err := grammar.NewCompiler(tok, tok.VocabSize(), []int32{structuredtest.EOS}).Compile(t.Context(), grammar.Spec{Kind: Lark, Source: lark})
	if err != nil {
		t.Errorf("%.80s: %v", c.source, err)
		return
	}
	defer g.Release()
	for i, text := range append(c.good, c.bad...) {
		st, err := g.Begin(grammar.Preamble{}, false)
		if err != nil {
			t.Fatal(err)
		}
		ids, _ := tok.Encode(text, false)
		at := structuredtest.Follow(t, st, ids)
		st.Close()
		if good := i < len(c.good); good != (at < 0) {
			t.Errorf("%.80s: %q: good %v, stops at %d", c.source, text, good, at)
		}
	}
}

func TestEBNF(t *testing.T) {
	tok, _ := structuredtest.Tokenizer(t, true)
	for _, c := range []accepts{
		{`root ::= "a" | "b" "c"`, []string{"a", "bc"}, []string{"", "b", "ab", "c"}},
		{"# a list\nroot ::= item (\", \" item)*\nitem ::= [a-z]+ | [0-9]{1,2} # short\n", []string{"a", "abc, 12", "1, z"}, []string{"a,b", "123", "A", "a, "}},
		{"root ::= \"(\" root? \")\"", []string{"()", "((()))"}, []string{"(", "())", ""}},
		{`root  ::= expr
expr  ::= term ("+" term)*
term  ::= num | "(" expr ")"
num   ::= "-"? [0-9]+ ("." [0-9]+)?`, []string{"1", "-1.5+(2+3)", "((7))"}, []string{"1+", "+1", "1.", "(1"}},
		{`root ::= [^a-c\n] [\x41-\u0043] [-x] "\"\\\n\u00e9"`, []string{"zB-\"\\\né", "\tAx\"\\\né"}, []string{"aB-\"\\\né", "zD-\"\\\né", "\nAx\"\\\né"}},
		{`root ::= ("x" | ) "y" {2} | ""`, []string{"yy", "xyy", ""}, []string{"y", "x", "yyy"}},
		{"root ::= \"a\"{ 2 }\"b\"{1,}\"c\"{, 2}\"d\"{\n1 ,2}", []string{"aabd", "aabbbccdd"}, []string{"abd", "aabcccd", "aabc"}},
		{`root-a ::= "x"` + "\nroot ::= root-a root-a? .", []string{"xz", "xxz", "xé"}, []string{"x"}},
		{"start: \"::=\" /[a-z]/ \"/\"", []string{"::=a/"}, []string{"::="}},
	} {
		source, err := GrammarSource(c.source)
		if err != nil {
			t.Errorf("%s: %v", c.source, err)
			continue
		}
		c.check(t, tok, source)
	}
	for _, bad := range []string{
		`root ::= "a`, `root ::= [a`, `root ::= ("a"`, `root ::= "a")`, `root ::= b`, `a ::= "a"`, `root ::= *`, `root ::= "a" ** "b"`, `root ::= "a" {2`,
		"root ::= \"a\"\nroot ::= \"b\"", `x root ::= "a"` + "\nroot ::= \"\"", `root ::= (?= "a") "a"`, `root ::= []`, `root ::= "\u12"`, `root ::= %`, `root ::= "a" | | * "b"`, `root ::= "\`,
		`root ::= "a"{}`, `root ::= "a"{,}`, `root ::= "a"{x}`, `root ::= "a"{3,2}`, `root ::= "a"{1,2,3}`, `root ::= "a"{-1}`, `root ::= "a"{99999999999}`, "root ::= \"a\"{\n(\"x\"}", "root ::= {\n1}",
	} {
		if source, err := GrammarSource(bad); err == nil {
			t.Errorf("%q is taken: %s", bad, source)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

const digit = `{"type":"json_schema","json_schema":{"type":"integer","minimum":0,"maximum":9}}`

func TestTags(t *testing.T) {
	for _, special := range []bool{true, false} {
		tok, tokens := structuredtest.Tokenizer(t, special)
		for _, c := range []accepts{
			{`{"structures":[{"begin":"<f>","schema":{"type":"integer","minimum":0,"maximum":9},"end":"</f>"},{"begin":"<g x>","schema":{"enum":["a"]},"end":"</g>"}],"triggers":["<f>","<g"]}`,
				[]string{"", "so <", "it is <f>3</f>.", "<g x>\"a\"</g> and <f>4</f>"}, []string{"<f>x", "<f>3.", "<g y>", "so <g x>\"b\""}},
			{`{"format":{"type":"triggered_tags","triggers":["<f>"],"tags":[{"type":"tag","begin":"<f>","content":` + digit + `,"end":"</f>"}],"at_least_one":true,"stop_after_first":true}}`,
				[]string{"<f>3</f>", "so <f>3</f>"}, []string{"", "so", "<f>3</f>."}},
			{`{"format":{"type":"triggered_tags","triggers":["<f>"],"tags":[{"begin":"<f>","content":` + digit + `,"end":["</f>","</>"]}],"stop_after_first":true,"excludes":["no"]}}`,
				[]string{"so", "so <f>3</>", "n"}, []string{"no", "so no <f>3</f>", "<f>3</f><f>"}},
			{`{"format":{"type":"sequence","elements":[{"type":"any_text"},{"type":"const_string","value":"<tool_call>"},` + digit + `,{"type":"any_text","excludes":["!"]}]}}`,
				[]string{"<tool_call>3", "so <tool_call>4 ok"}, []string{"so", "so <tool_call>x", "<tool_call>4 ok!"}},
			{`{"format":{"type":"tag","begin":"<a>","content":{"type":"any_text"},"end":"</a>"}}`, []string{"<a></a>", "<a>x</</a>"}, []string{"<a>", "x", "<a></a>x"}},
			{`{"format":{"type":"tag","begin":"<a>","content":{"type":"or","elements":[{"type":"regex","pattern":"[a-z/]{2}"},{"type":"grammar","grammar":"root ::= \"1\" root?"},{"type":"grammar","grammar":"start: \"{\" \"}\""}]},"end":"</a>"}}`,
				[]string{"<a>x/</a>", "<a>111</a>", "<a>{}</a>"}, []string{"<a>x</a>", "<a></a>", "<a>12"}},
			{`{"format":{"type":"tags_with_separator","separator":", ","tags":[{"type":"tag","begin":"a","content":` + digit + `,"end":""},{"type":"tag","begin":"b","content":{"type":"const_string","value":"!"},"end":"."}],"at_least_one":true}}`,
				[]string{"a1", "a1, b!., a2"}, []string{"", "a1,", "a1 b!."}},
			{`{"format":{"type":"tag","begin":"<f>\n","content":{"type":"qwen_xml_parameter","json_schema":{"type":"object","properties":{"q":{"type":"string"},"n":{"type":"integer"},"k":{"type":"string","enum":["a","b"]}},"required":["q","k"]}},"end":"</f>"}}`,
				[]string{"<f>\n<parameter=q>\nx\ny\n</parameter>\n<parameter=k>\nb\n</parameter>\n</f>", "<f>\n<parameter=q>\n\n</parameter>\n<parameter=n>\n-3\n</parameter>\n<parameter=k>\na\n</parameter>\n</f>"},
				[]string{"<f>\n<parameter=k>\na", "<f>\n<parameter=q>\nx\n</parameter>\n<parameter=k>\nc"}},
		} {
			source, err := TagSource(json.RawMessage(c.source), tokens)
			if err != nil {
				t.Errorf("%s: %v", c.source, err)
				continue
			}
			c.check(t, tok, source)
		}
	}
}

func TestTagsRefused(t *testing.T) {
	for _, bad := range []string{
		`[]`, `{}`, `{"structures":[],"triggers":["a"]}`, `{"structures":[{"begin":"b","schema":{},"end":""}],"triggers":["a"]}`, `{"structures":[{"begin":"a","schema":[],"end":""}],"triggers":["a"]}`,
		`{"format":{"type":"poem"}}`, `{"format":{"type":"sequence"}}`, `{"format":{"type":"sequence","elements":[null]}}`, `{"format":{"type":"or","elements":[]}}`,
		`{"format":{"type":"sequence","elements":[{"type":"any_text"},{"type":"regex","pattern":"a"}]}}`, `{"format":{"type":"tag","begin":"a"}}`, `{"format":{"type":"regex"}}`,
		`{"format":{"type":"tag","begin":"a","content":{"type":"any_text"},"end":[]}}`, `{"format":{"type":"grammar","grammar":"root ::= b"}}`,
		`{"format":{"type":"triggered_tags","triggers":["a"],"tags":[{"begin":"a","content":{"type":"any_text"}}]}}`,
		`{"format":{"type":"sequence","elements":[` + strings.Repeat(`{"type":"const_string","value":"a"},`, maxTags) + `{"type":"const_string"}]}}`,
		`{"format":` + strings.Repeat(`{"type":"sequence","elements":[{"type":"any_text"},`, 40) + digit + strings.Repeat(`]}`, 40) + `}`,
	} {
		if source, err := TagSource(json.RawMessage(bad), nil); err == nil {
			t.Errorf("%.200s is taken: %.200s", bad, source)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// FuzzStructure checks that any source is refused with a one-line error or becomes a grammar
// of bounded size.
func FuzzStructure(f *testing.F) {
	f.Add(`{"format":{"type":"tag","begin":"<a>","content":{"type":"any_text"},"end":"</a>"}}`)
	f.Add(`{"structures":[{"begin":"<f>","schema":{},"end":"</f>"}],"triggers":["<f>"]}`)
	f.Add("root ::= [a-z]+ (\"x\" | root){1,2} # c")
	f.Add(`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`)
	f.Fuzz(func(t *testing.T, source string) {
		out, err := TagSource(json.RawMessage(source), map[string]int32{"<a>": 7})
		for _, o := range []SchemaOptions{{}, {NoWhitespace: true}, {Whitespace: " ?", Closed: true}} {
			if json.Valid([]byte(source)) && err == nil {
				_, err = SchemaSource(json.RawMessage(source), o)
			}
		}
		if err == nil || strings.Contains(source, "::=") {
			var more string
			more, err = GrammarSource(source)
			out += more
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q", err)
		}
		if len(out) > 64*len(source)+1<<16 {
			t.Errorf("%d bytes become %d", len(source), len(out))
		}
	})
}
