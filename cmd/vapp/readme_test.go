package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestReadmePlan checks that the plan of Gemma 4 in the README equals the output of the command,
// line by line, except for lines left out.
func TestReadmePlan(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	const command = "`vapp plan profiles/gemma4-fp8.cue --gpu a100-80g --compat vllm-0.19`"
	_, rest, found := strings.Cut(string(readme), command)
	_, rest, opened := strings.Cut(rest, "\n```\n")
	block, _, closed := strings.Cut(rest, "\n```\n")
	if !found || !opened || !closed {
		t.Fatal("the README has no block behind " + command)
	}
	t.Setenv("HF_HUB_CACHE", t.TempDir()) // cached weights do not change the plan's source
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs([]string{"plan", "../../profiles/gemma4-fp8.cue", "--gpu", "a100-80g", "--compat", "vllm-0.19"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	lines, at := strings.Split(out.String(), "\n"), 0
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	skip := true
	for _, line := range strings.Split(block, "\n") {
		want := strings.Join(strings.Fields(line), " ")
		if want == "…" {
			skip = true
			continue
		}
		from := at
		for skip && at < len(lines) && !same(lines[at], want) {
			at++
		}
		if at == len(lines) || !same(lines[at], want) {
			t.Fatalf("the README has %q, which the command does not print here:\n%s", line, strings.Join(lines[from:min(from+8, len(lines))], "\n"))
		}
		at, skip = at+1, false
	}
}

// same reports whether a printed line equals the README's, which may omit a note after "]".
func same(printed, readme string) bool {
	return printed == readme || strings.HasSuffix(readme, "]") && strings.HasPrefix(printed, readme+" ")
}
