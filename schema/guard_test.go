package schema

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// chain returns first and n more lines, each of which refers to the one before.
func chain(n int, first, line string) string {
	var b strings.Builder
	b.WriteString(first + "\n")
	for i := range n {
		b.WriteString(strings.NewReplacer("NEW", fmt.Sprintf("_x%d", i+1), "OLD", fmt.Sprintf("_x%d", i)).Replace(line) + "\n")
	}
	return b.String()
}

// TestGuard checks that profiles whose evaluation would explode are refused as TooLarge,
// quickly and without much memory.
func TestGuard(t *testing.T) {
	again := strings.Repeat
	for name, text := range map[string]string{
		"bytes":           "// " + again("x", maxBytes),
		"parentheses":     "name: " + again("(", 100_000),
		"closed":          "name: " + again("(", 5000) + "1" + again(")", 5000),
		"braces":          again("a: {", 100_000),
		"labels":          again("a: ", 100_000) + "1",
		"signs":           "name: " + again("!", 100_000) + "true",
		"selectors":       "name: a" + again(".b", 100_000),
		"sum":             "name: 1" + again("+1", 100_000),
		"interpolations":  "name: " + again(`"\(`, 100_000),
		"fields":          again("a: 1\n", maxColons+1),
		"digits":          "name: " + again("9", 1000),
		"exponent":        "serve: port: 1e999999999",
		"negative":        "cpu: httpShare: 1e-999999999",
		"doubled text":    chain(60, `_x0: "0123456789"`, `NEW: "\(OLD)\(OLD)"`),
		"doubled lists":   chain(60, `_x0: [1]`, `NEW: [OLD, OLD]`),
		"doubled structs": chain(60, `_x0: {a: 1}`, `NEW: {a: OLD, b: OLD}`),
		"let":             chain(60, `let _x0 = "0123456789"`, `let NEW = OLD + OLD`),
		"long chain":      chain(5000, `_x0: 1`, `NEW: OLD`),
		"loops":           "_l: [" + again("1,", 1000) + "]\n_x: [for a in _l for b in _l for c in _l {a+b+c}]",
		"loops of loops":  chain(10, `_x0: [1,2,3,4,5,6,7,8]`, `NEW: [for a in OLD for b in OLD {a}]`),
		"times":           `name: "x" * 1000000000`,
		"times a name":    "_n: 1000000000\n_s: \"x\"\nname: _s * _n",
		"Repeat":          "import \"strings\"\nname: strings.Repeat(\"x\", 1000000000)",
		"Range":           "import \"list\"\n_x: list.Range(0, 1000000000, 1)",
		"other packages":  "import \"math\"\n_x: math.Pow(10, 100000)",
		"joined":          "import \"strings\"\n" + chain(30, `_x0: "0123456789"`, `NEW: strings.Join([OLD,OLD,OLD], OLD)`),
		"alternatives":    "_x: " + again("({a: 1} | {b: 1}) & ", 30) + "{}",
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			_, err := Parse("profile.cue", []byte(text))
			spent := time.Since(start)
			runtime.ReadMemStats(&after)
			var e *Error
			if !errors.As(err, &e) || e.Kind() != TooLarge {
				t.Errorf("%v, want too large", err)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 256<<20 {
				t.Errorf("%d bytes allocated", grown)
			}
			if spent >= maxTime {
				t.Errorf("refused by the clock only, after %v", spent)
			}
		})
	}
}

// TestGuardLets checks that the constructs of ordinary profiles are accepted.
func TestGuardLets(t *testing.T) {
	p := parse(t, `import ("vapp.dev/schema", "strings")

let seqs = 8
_base: {host: "127.0.0.1", port: 8000 + seqs}
_sizes: {small: "1GiB", large: "8GiB"}
_size: *"small" | "large"
schema.#Profile & {
	name: strings.ToLower("MINE") + "-\(seqs)"
	model: source: "models/\(name).gguf"
	memory: kvCache: _sizes[_size]
	scheduler: {maxNumSeqs: seqs * 2, maxNumBatchedTokens: maxNumSeqs * 8}
	serve: _base & {servedModelName: [for s in ["a", "b"] if s != "c" {"\(name)-\(s)"}]}
	if seqs > 4 {
		cudagraph: captureSizes: [1, 2, 4]
	}
}`)
	if p.Name != "mine-8" || p.Serve.Port != 8008 || p.Scheduler.MaxNumBatchedTokens != 128 || len(p.Serve.ServedModelName) != 2 || p.Memory.KVCache != 1<<30 {
		t.Errorf("%+v", p)
	}
}

// TestEvaluationEnds checks that the clock ends an evaluation after its ticks and no earlier, and
// that a result is returned without any.
func TestEvaluationEnds(t *testing.T) {
	clock, release := make(chan time.Time), make(chan int)
	go func() {
		for range 2 {
			clock <- time.Time{}
		}
		release <- 7
	}()
	wait := func() (int, error) { return <-release, nil }
	if n, err := withinTicks("p.cue", wait, clock, 3); n != 7 || err != nil {
		t.Errorf("after 2 of 3 ticks: %d, %v", n, err)
	}
	go func() {
		for range 3 {
			clock <- time.Time{}
		}
	}()
	var e *Error
	if _, err := withinTicks("p.cue", wait, clock, 3); !errors.As(err, &e) || e.Kind() != TooLarge {
		t.Errorf("after 3 of 3 ticks: %v, want too large", err)
	}
	release <- 0
}

// TestBytesText checks the shortest unit of a size, and that it is read back.
func TestBytesText(t *testing.T) {
	for b, want := range map[Bytes]string{0: "0B", 1001: "1001B", 1 << 30: "1GiB", 1e9: "1GB", 2e9: "2GB", 1000 << 20: "1000MiB", 18004 << 20: "18004MiB", 384: "384B"} {
		if back, err := ParseBytes(want); b.String() != want || err != nil || back != b {
			t.Errorf("%d: %v, want %s; read back as %d, %v", int64(b), b, want, int64(back), err)
		}
	}
}
