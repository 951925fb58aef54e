package schema

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// mistakes are lines of a profile, each with the path of its only error. They are
// independent of each other.
var mistakes = [][2]string{
	{`backned: "cpu"`, `backned`},
	{`serve: prot: 80`, `serve.prot`},
	{`serve: {cors: {allowOrigins: ["*"]}}`, `serve.cors.allowOrigins`},
	{`serve: port: 99999`, `serve.port`},
	{`serve: {accessLog: "yes"}`, `serve.accessLog`},
	{`serve: limits: maxQueue: -1`, `serve.limits.maxQueue`},
	{`serve: drainTimeout: "999999h999999h999999h999999h"`, `serve.drainTimeout`},
	{`serve: apiKeys: ["a", {flie: "x"}]`, `serve.apiKeys[1]`},
	{`scheduler: maxNumSeqs: 3, scheduler: maxNumSeqs: 4`, `scheduler.maxNumSeqs`},
	{`scheduler: policy: "lifo"`, `scheduler.policy`},
	{`scheduler: itlTarget: 50`, `scheduler.itlTarget`},
	{`memory: {kvCache: "1GiB", utilization: 0.5}`, `memory.utilization`},
	{`memory: reserve: "9999999999999999T"`, `memory.reserve`},
	{`backend: cuda`, `backend`},
	{`cpu: threads: 1/0`, `cpu.threads`},
	{`log: []`, `log`},
	{`sampling: temperature: >0`, `sampling.temperature`},
	{`speculative: method: "mtp"`, `speculative.numTokens`},
	{`require: concurrency: {">=8": "2G"}`, `require.concurrency.">=8"`},
	{`model: {dtype: 3}`, `model.dtype`},
	{`cudagraph: captureSizes: [1, 0]`, `cudagraph.captureSizes[1]`},
	{`_seqs: 2, parallel: tensor: _seqs * 1000`, `parallel.tensor`},
	{`parsers: toolCall: "not a name"`, `parsers.toolCall`},
	{`maxModelLen: "8KiB"`, `maxModelLen`},
}

// TestAllMistakes checks that of any combination of mistakes each one is reported, and nothing
// else.
func TestAllMistakes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	checkReported(t, mistakes)
	for range 24 {
		some := slices.Clone(mistakes)
		rng.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		checkReported(t, some[:1+rng.IntN(4)])
	}
}

// checkReported parses a profile with these mistakes and compares the reported paths.
func checkReported(t *testing.T, wrong [][2]string) {
	t.Helper()
	text := "import \"vapp.dev/schema\"\n\nschema.#Profile & {\n\tmodel: source: \"org/model\"\n"
	want := []string{"name"} // missing
	for _, m := range wrong {
		text += "\t" + m[0] + "\n"
		want = append(want, m[1])
	}
	_, err := Parse("profile.cue", []byte(text+"}\n"))
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%s%v", text, err)
	}
	var got []string
	last := 0
	for _, p := range e.List {
		got = append(got, p.Path)
		if p.Pos.Line < last {
			t.Errorf("line %d after %d", p.Pos.Line, last)
		}
		last = p.Pos.Line
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s\n got %s\nwant %s\n%v", text, strings.Join(got, " "), strings.Join(want, " "), err)
	}
}
