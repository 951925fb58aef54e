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

// newTrialCompiler returns a compiler like a server's: it tries grammars that are not plain in a
// child process, with this limit on time.
func newTrialCompiler(t *testing.T, limit time.Duration) *Compiler {
	t.Helper()
	c, tok, _ := compiler(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	box := tokenizer.Sandbox{Exe: exe, Args: []string{trialArg}, Time: limit, Children: tokenizer.NewChildren()}
	c.budget = 2 * time.Minute // the machine may be busy
	c.TryWith(func(ctx context.Context, s Spec, cost int, unneeded func() bool) (func(), int64, error) {
		return tokenizer.TryGrammar(ctx, box, s, tok.Specials(), cost, unneeded)
	})
	t.Cleanup(func() {
		if !box.Children.Idle() {
			t.Error("a child still has its place")
		}
	})
	return c
}

func schemaSpec(s string) Spec { return Spec{Kind: tokenizer.GrammarJSONSchema, Source: s} }
func regexSpec(s string) Spec  { return Spec{Kind: tokenizer.GrammarRegex, Source: s} }
func larkSpec(s string) Spec   { return Spec{Kind: tokenizer.GrammarLark, Source: s} }

// times concatenates n strings.
func times(n int, what func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(what(i))
	}
	return b.String()
}

// smaller is the end of every refusal for exceeding the budget of time or memory, because either
// limit may be hit first.
const smaller = "to compile; make it smaller"

// hostile lists grammars that are expensive or meaningless. The refusal contains why; "": the
// grammar is accepted quickly.
var hostile = []struct {
	name string
	spec Spec
	why  string
}{
	{"regex of 60 KB", regexSpec(strings.Repeat("a?", 20000) + strings.Repeat("a", 20000)), smaller},
	{"multiples of everything", schemaSpec(`{"type":"integer","allOf":[{"multipleOf":9973},{"multipleOf":9967},{"multipleOf":9949},{"multipleOf":9941}]}`), smaller},
	{"multipleOf 1e-300", schemaSpec(`{"type":"number","multipleOf":1e-300}`), "too many digits"},
	{"5,000 properties", schemaSpec(`{"type":"object","properties":{` + times(5000, func(i int) string { return fmt.Sprintf(`"p%d":{"type":"integer"},`, i) }) + `"x":{}}}`), smaller},
	{"a million times", regexSpec(`a{1000000}`), smaller},
	{"a milliard times", regexSpec(`a{1000000000}`), smaller},
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

// TestHostile checks that each grammar is refused with the compiler's reason or accepted, within
// the budget, and that the compiler stays usable.
func TestHostile(t *testing.T) {
	patient, strict := newTrialCompiler(t, time.Minute), newTrialCompiler(t, time.Second)
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
		if !c.compiling.Idle(numSlots()) {
			t.Fatalf("%s: its compilation continues", h.name)
		}
	}
}

// TestCompileCancelled checks that a client that disconnects cancels its compilation and frees its
// slot.
func TestCompileCancelled(t *testing.T) {
	c := newTrialCompiler(t, time.Minute)
	ctx, cancel := context.WithCancel(context.Background())
	begun := make(chan struct{})
	try := c.try
	c.try = func(ctx context.Context, s Spec, cost int, _ func() bool) (func(), int64, error) {
		return try(ctx, s, cost, func() bool {
			close(begun) // the trial has its slot
			return false
		})
	}
	done := make(chan error)
	go func() {
		_, err := c.Compile(ctx, hostile[0].spec)
		done <- err
	}()
	<-begun
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestPlain(t *testing.T) {
	for s, want := range map[string]bool{
		schema: true, `a{1000}`: false, `a{999}`: true, `(a{99}){99}`: false, `(a{9,99}){0,9}`: false, `(a{0,64}){0,9}`: true, `((a{64}){64}){2}`: false,
		`{"multipleOf":3}`: false, `{"maximum":99999}`: false, strings.Repeat("a", plainBytes+1): false, "": true, "{12": true,
		`start: <[200008]> %json {}`: true, `<[200008`: false, `[200008]`: false,
	} {
		if got := plain(Spec{Source: s}); got != want {
			t.Errorf("%.40s: %v", s, got)
		}
	}
	for s, want := range map[string]bool{
		`{"maximum":2100}`: true, `{"minimum": -1000000, "exclusiveMaximum" : 1234567.5}`: true, `{"maximum":12345678901234567}`: false,
		`{"maxItems":2100}`: false, `{"minLength":1000}`: false, `{"pattern":"a{2100}"}`: false, `{"pattern":"\"maximum\":{2100}"}`: false, `{"minimum":[2100]}`: false,
	} {
		if got := plain(schemaSpec(s)); got != want {
			t.Errorf("schema %s: %v", s, got)
		}
	}
}

// TestPlainRanges checks that the cost of a plain schema's ranges is bounded too.
func TestPlainRanges(t *testing.T) {
	c, _, _ := compiler(t)
	c.TryWith(func(context.Context, Spec, int, func() bool) (func(), int64, error) {
		return nil, 0, errors.New("nothing is tried here")
	})
	fields := func(sep string) string {
		return strings.TrimSuffix(times(55, func(i int) string { return fmt.Sprintf(sep, i, 1234567+i*977, 987654321+i*7919) }), ",")
	}
	for name, source := range map[string]string{
		"properties": `{"properties":{` + fields(`"p%d":{"type":"integer","minimum":-%d,"maximum":%d},`) + `}}`,
		"anyOf":      `{"anyOf":[` + fields(`{"title":"%d","type":"number","minimum":-%d,"maximum":%d},`) + `]}`,
		"allOf":      `{"type":"number","allOf":[` + fields(`{"title":"%d","minimum":-%d,"exclusiveMaximum":%d},`) + `]}`,
		"decimals":   `{"properties":{` + fields(`"p%d":{"type":"number","minimum":-0.%d,"maximum":0.%d},`) + `}}`,
	} {
		begun := time.Now()
		g, err := c.Compile(t.Context(), schemaSpec(source))
		if err != nil || len(source) > plainBytes || g.size > plainMemory {
			t.Fatalf("%s of %d bytes: %v", name, len(source), err)
		}
		t.Logf("%-10s %5d bytes, %v, %d KiB of memory, %d of a state", name, len(source), time.Since(begun), g.size>>10, g.copy>>10)
	}
}

// TestCost checks that a schema with few states and large numbers does not wait for grammars that
// are tried first.
func TestCost(t *testing.T) {
	small, large := cost(schemaSpec(`{"type":"object","properties":{"a":{"type":"integer","multipleOf":5}}}`)), 0
	for _, h := range hostile {
		if h.why == smaller {
			if large = cost(h.spec); large <= small {
				t.Errorf("%s costs %d, a small schema %d", h.name, large, small)
			}
		}
	}
}
