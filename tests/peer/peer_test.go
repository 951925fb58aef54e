package main

import (
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"vapp.dev/tests/peer/figures"
)

// TestStat checks the parsing of CPU times: eight columns, without those of guests, which the
// first two include.
func TestStat(t *testing.T) {
	a := parseStat([]byte("cpu  100 20 30 1000 50 1 2 7 99 99\ncpu0 1 1 1 1 1 1 1 1 0 0\n"))
	if a.busy != 160 || a.all != 1210 {
		t.Fatalf("%+v", a)
	}
	b := cpuTime{a.busy + 150, a.all + 200}
	if got := a.others(b, time.Second); math.Abs(got-0.25) > 1e-9 {
		t.Errorf("of 200 ticks 150 were busy and 100 ours: %v, want 0.25", got)
	}
	if got := a.others(b, time.Hour); got != 0 {
		t.Errorf("ours is more than all: %v", got)
	}
	if got := a.others(a, 0); got != 0 {
		t.Errorf("no time has passed: %v", got)
	}
	for _, bad := range []string{"", "cpu 1 2", "intr 1 2 3 4 5 6 7 8", "cpu a b c d e f g h"} {
		if got := parseStat([]byte(bad)); got != (cpuTime{}) {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

// TestProcess checks the parsing of a process's files with an unusual process name.
func TestProcess(t *testing.T) {
	const stat = "42 (a) R 1 (x)) S 1 42 42 0 -1 4194560 500 0 3 0 250 50 9 9 20 0 12 0 1000 1 2"
	if got := processTime(stat); got != 3*time.Second {
		t.Errorf("%v, want 3 s", got)
	}
	if got := highWater("Name:\tx\nVmPeak:\t 9 kB\nVmHWM:\t    2048 kB\nVmRSS:\t 1 kB\n"); got != 2<<20 {
		t.Errorf("%v, want 2 MiB", got)
	}
	for _, bad := range []string{"", "42 (x", "1 (x) S 1 2"} {
		if processTime(bad) != 0 || highWater(bad) != 0 {
			t.Errorf("%q means something", bad)
		}
	}
}

// TestChosen checks the parsing of -part.
func TestChosen(t *testing.T) {
	all := figures.Names()
	for part, want := range map[string][]string{"": all, "report": nil, "streams,llama1b-bf16": {"streams", "llama1b-bf16"}} {
		if got, err := chosen(part); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", part, got, err)
		}
	}
	if _, err := chosen("llama1b-bf16,nothing"); err == nil {
		t.Error("a part that there is not was taken")
	}
}

// TestEstimate checks that the estimate is the time of the last run, scaled to the rounds.
func TestEstimate(t *testing.T) {
	b := bench{dir: t.TempDir(), rounds: 3}
	if err := os.Mkdir(b.dir+"/results", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, p := range []figures.Part{{Name: "llama1b-q8_0", Took: 100, Rounds: 2}, {Name: figures.Streams, Took: 50, Rounds: 1}} {
		if err := p.Save(b.dir + "/results"); err != nil {
			t.Fatal(err)
		}
	}
	parts := []string{"llama1b-q8_0", "smollm2-q4_1", figures.Streams}
	g, err := b.estimate(parts)
	if err != nil || g["llama1b-q8_0"] != 150*time.Second || g["smollm2-q4_1"] != 3*usual["smollm2-q4_1"] || g[figures.Streams] != 50*time.Second {
		t.Errorf("%v, %v", g, err)
	}
	var printed strings.Builder
	g.print(&printed, parts)
	if want := "bench-peer: about 7 minutes: llama1b-q8_0 150 s, smollm2-q4_1 210 s, streams 50 s\n"; printed.String() != want {
		t.Errorf("%q, want %q", printed.String(), want)
	}
	for _, name := range figures.Names() {
		if usual[name] == 0 {
			t.Errorf("nobody knows how long %s takes", name)
		}
	}
}

// TestWriteIndex checks that the index is written from the pages, and that a page that is none of
// these is named.
func TestWriteIndex(t *testing.T) {
	docs := t.TempDir()
	if err := os.Mkdir(docs+"/performance", 0o755); err != nil {
		t.Fatal(err)
	}
	page := figures.Report(nil, figures.Place{CPU: "a processor"}, "")
	if err := os.WriteFile(docs+"/performance/a.md", []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeIndex(docs); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(docs + "/performance.md"); err != nil || !strings.Contains(string(got), "[a processor](performance/a.md)") {
		t.Errorf("%s, %v", got, err)
	}
	if err := os.WriteFile(docs+"/performance/b.md", []byte("# Else\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeIndex(docs); err == nil || !strings.Contains(err.Error(), "b.md") {
		t.Errorf("another text: %v", err)
	}
}

// TestTurnOrder checks that the two compared sides alternate in all rounds, and that the others
// have three turns.
func TestTurnOrder(t *testing.T) {
	sides := []side{{name: figures.Llama}, {name: figures.Vapp, file: "a"}, {name: figures.LlamaBest}, {name: figures.VappInt8, file: "b"}}
	pair := compared(sides)
	if pair != [2]int{0, 3} || compared(sides[:3]) != [2]int{0, 1} {
		t.Errorf("compared are %v, without int8 activations %v", pair, compared(sides[:3]))
	}
	if more := slices.Insert(slices.Clone(sides), 3, side{name: figures.VappFavor, file: "c"}); compared(more) != [2]int{0, 4} {
		t.Errorf("with a side that favors decoding %v", compared(more))
	}
	if got, want := turnOrder(4, pair), []int{0, 3, 1, 2, 0, 3, 0, 3, 1, 2, 0, 3, 1, 2, 0, 3, 0, 3, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, c := range []struct {
		bandwidth float64
		file      int64
		want      int
	}{{40e9, 2_500_000_000, 40}, {40e9, 1e6, 512}, {1e9, 1 << 40, 8}, {0, 0, 8}} {
		if got := turnTokens(c.bandwidth, c.file); got != c.want {
			t.Errorf("%v: %d tokens", c, got)
		}
	}
}

// TestResident checks that a program answers each line with one line, and that one that ends or
// prints invalid output is an error.
func TestResident(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("not run: there is no sh")
	}
	r, err := reside(t.Context(), "a", command{path: sh, args: []string{"-c", `while read x; do echo '{"read bandwidth": 5}'; done`}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if v, err := r.read(); err != nil || v != 5 {
			t.Errorf("%v, %v", v, err)
		}
	}
	r.close()
	for script, want := range map[string]string{"read x; echo because >&2; exit 3": "exit status 3: because", "read x; echo what": "invalid character"} {
		r, err := reside(t.Context(), "b", command{path: sh, args: []string{"-c", script}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.read(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", script, err)
		}
	}
}

// TestRun checks the output, resource use and error of a tool, and that a server is stopped.
func TestRun(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("not run: there is no sh")
	}
	r, err := command{path: sh, args: []string{"-c", "echo $X; echo warning >&2; echo last words >&2"}, env: []string{"X=out"}}.run(t.Context())
	if err != nil || string(r.out) != "out\n" || r.reason() != "last words" || r.peak <= 0 || r.seconds <= 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := execute(t.Context(), sh, "-c", "echo because >&2; exit 3"); err == nil || err.Error() != "sh: exit status 3: because" {
		t.Errorf("%v", err)
	}
	s, err := start(command{path: sh, args: []string{"-c", "echo started; exec sleep 60"}})
	if err != nil {
		t.Fatal(err)
	}
	s.stop()
	dead, err := start(command{path: sh, args: []string{"-c", "echo no model; exit 1"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.ready(t.Context(), address{1, "/readyz"}); err == nil {
		t.Error("a server that ended is ready")
	}
	if got := string(dead.stop()); got != "no model\n" {
		t.Errorf("it said %q", got)
	}
}
