//go:build cgo

package grammar

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"vapp.dev/engine/tokenizer"
)

const trialArg = "-serve-trial"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == trialArg {
		if err := tokenizer.ServeSandbox(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// tried is a compiler as a server has it: with a child process for what is not plain, and
// so much time for that.
func tried(t *testing.T, limit time.Duration) *Compiler {
	t.Helper()
	c, tok, _ := compiler(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	box := tokenizer.Sandbox{Exe: exe, Args: []string{trialArg}, Time: limit}
	c.budget = 2 * time.Minute // the machine may be busy
	c.TryWith(func(ctx context.Context, s Spec) error {
		return tokenizer.TryGrammar(ctx, box, s, tok.Specials())
	})
	return c
}

func schemaSpec(s string) Spec { return Spec{Kind: tokenizer.GrammarJSONSchema, Source: s} }
func regexSpec(s string) Spec  { return Spec{Kind: tokenizer.GrammarRegex, Source: s} }
func larkSpec(s string) Spec   { return Spec{Kind: tokenizer.GrammarLark, Source: s} }

// times writes n things in a row.
func times(n int, what func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(what(i))
	}
	return b.String()
}

// smaller ends the refusal of what is over the budget, of time or of memory, whichever it
// meets first.
const smaller = "to compile; make it smaller"

// hostile are grammars that cost much or mean nothing. why is in the refusal; "": it is taken,
// quickly.
var hostile = []struct {
	name string
	spec Spec
	why  string
}{
	{"regex of 60 KB", regexSpec(strings.Repeat("a?", 20000) + strings.Repeat("a", 20000)), smaller},
	{"multiples of everything", schemaSpec(`{"type":"integer","allOf":[{"multipleOf":9973},{"multipleOf":9967},{"multipleOf":9949},{"multipleOf":9941}]}`), smaller},
	{"multipleOf 1e-300", schemaSpec(`{"type":"number","multipleOf":1e-300}`), "too many digits"},
	{"5,000 properties", schemaSpec(`{"type":"object","properties":{` + times(5000, func(i int) string { return fmt.Sprintf(`"p%d":{"type":"integer"},`, i) }) + `"x":{}}}`), smaller},
	{"a million times", regexSpec(`a{1000000}`), "expressions"},
	{"a milliard times", regexSpec(`a{1000000000}`), "expressions"},
	{"a million items of Lark", larkSpec(`start: "a"{1000000}`), "items"},
	{"a hundred thousand properties of a schema", schemaSpec(`{"properties":{` + times(20000, func(i int) string { return fmt.Sprintf(`"p%d":{"type":"integer"},`, i) }) + `"x":{}}}`), "over 256 KiB"},
	{"enum of 20,000", schemaSpec(`{"enum":[` + times(20000, func(i int) string { return fmt.Sprintf(`"v%d%d",`, i, i*7919%1000003) }) + `1]}`), "over 256 KiB"},
	{"14,000 choices", Spec{Kind: tokenizer.GrammarChoice, Source: `[` + times(14000, func(i int) string { return fmt.Sprintf(`"v%d",`, i) }) + `"x"]`}, "items"},
	{"references in a circle", schemaSpec(`{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}`), "no text satisfies it"},
	{"itself twice", schemaSpec(`{"$defs":{"a":{"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}]}},"$ref":"#/$defs/a"}`), "circular"},
	{"2,000 references", schemaSpec(`{"$ref":"#/$defs/d0","$defs":{` + times(2000, func(i int) string { return fmt.Sprintf(`"d%d":{"$ref":"#/$defs/d%d"},`, i, i+1) }) + `"d2000":{"type":"null"}}}`), ""},
	{"laughs", schemaSpec(`{"$ref":"#/$defs/d0","$defs":{` + times(30, func(i int) string {
		return fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}) + `"d30":{"type":"null"}}}`), ""},
	{"a product of alternatives", schemaSpec(`{"type":"object","allOf":[` + times(12, func(i int) string {
		return `{"anyOf":[` + times(6, func(k int) string { return fmt.Sprintf(`{"properties":{"p%d":{"minimum":%d}}},`, i, k) }) + `{"maxProperties":1}]},`
	}) + `{}]}`), "too large"},
	{"a milliard items", schemaSpec(`{"type":"array","minItems":1000000000,"items":{"type":"null"}}`), ""},
	{"a milliard characters", schemaSpec(`{"type":"string","minLength":1000000000}`), ""},
	{"patterns that grow", schemaSpec(`{"type":"string","pattern":"(a|b)*a(a|b){200}","maxLength":5000}`), "Unable to determine"},
	{"brackets, 20,000 deep", regexSpec(strings.Repeat("(a|", 20000) + "b" + strings.Repeat(")", 20000)), "nested parentheses"},
	{"brackets of Lark, 50,000 deep", larkSpec("start: " + strings.Repeat("(", 50000) + `"a"` + strings.Repeat(")", 50000)), "nested"},
	{"ambiguous without end", larkSpec("start: s\ns: s s | s s s | \"a\" | "), ""},
	{"rules in a circle", larkSpec("start: a\na: b\nb: a"), "no text satisfies it"},
	{"a token that is not there, and a bomb", larkSpec("start: <[99999]> /" + strings.Repeat("a?", 20000) + strings.Repeat("a", 20000) + "/"), smaller},
	{"look-ahead", regexSpec(`(?=a)b`), "look-around"},
	{"back-reference", regexSpec(`(a*)\1`), "backreferences"},
	{"not", schemaSpec(`{"not":{"type":"string"}}`), "not"},
	{"another machine's schema", schemaSpec(`{"$ref":"https://example.com/s.json"}`), "Only absolute"},
}

// Each is refused with the compiler's reason or taken, within the budget, and leaves the
// compiler free for the next.
func TestHostile(t *testing.T) {
	patient, strict := tried(t, time.Minute), tried(t, time.Second)
	for _, h := range hostile {
		c := patient
		if h.why == smaller {
			c = strict
		}
		begun := time.Now()
		_, err := c.Compile(context.Background(), h.spec)
		took := time.Since(begun)
		t.Logf("%-45s %6.0f ms: %.90v", h.name, took.Seconds()*1e3, err)
		var e *Error
		switch {
		case err != nil && !errors.As(err, &e):
			t.Errorf("%s: %v", h.name, err)
		case err != nil && (h.why == "" || !strings.Contains(err.Error(), h.why) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: refused with %v, want %q", h.name, err, h.why)
		case err == nil && h.why != "":
			t.Errorf("%s is taken, want %q", h.name, h.why)
		}
		if n := len(c.compiling) + len(c.trying); n > 0 {
			t.Fatalf("%s: %d compilations go on", h.name, n)
		}
	}
}

// A client that goes takes its compilation with it, and leaves room for the next.
func TestCompileCancelled(t *testing.T) {
	c := tried(t, time.Minute)
	ctx, cancel := context.WithCancel(context.Background())
	begun := make(chan struct{})
	try := c.try
	c.try = func(ctx context.Context, s Spec) error {
		close(begun)
		return try(ctx, s)
	}
	done := make(chan error)
	go func() {
		_, err := c.Compile(ctx, hostile[0].spec)
		done <- err
	}()
	<-begun
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if n := len(c.compiling) + len(c.trying); n > 0 {
		t.Errorf("%d compilations go on", n)
	}
}

func TestPlain(t *testing.T) {
	for s, want := range map[string]bool{
		schema: true, `a{1000}`: false, `a{999}`: true, `(a{99}){99}`: false, `(a{9,99}){0,9}`: false, `(a{0,64}){0,9}`: true, `((a{64}){64}){2}`: false,
		`{"multipleOf":3}`: false, `{"maximum":99999}`: false, strings.Repeat("a", plainBytes+1): false, "": true, "{12": true,
	} {
		if got := plain(Spec{Source: s}); got != want {
			t.Errorf("%.40s: %v", s, got)
		}
	}
}
