package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"vapp.dev/engine/enginetest"
	"vapp.dev/tools/lock/lockfile"
)

// toyProfile writes a profile of a toy model with more fields, and returns its path.
func toyProfile(t *testing.T, more string) string {
	t.Helper()
	dir := t.TempDir()
	if err := enginetest.WriteLlama(filepath.Join(dir, "toy"), enginetest.Llama{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "toy.cue")
	text := fmt.Sprintf(`import "vapp.dev/schema"
schema.#Profile & {
	name: "toy"
	model: source: "./toy"
	backend: "ref"
	maxModelLen: 256
	memory: kvCache: "16MiB"
	scheduler: maxNumSeqs: 4
	serve: {host: "127.0.0.1", port: 0}
	%s
}
`, more)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// until reads lines up to the one that contains last, and returns them.
func until(t *testing.T, r *bufio.Reader, last string) []string {
	t.Helper()
	var out []string
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("%v before a line with %q; got:\n%s%s", err, last, strings.Join(out, ""), line)
		}
		if out = append(out, line); strings.Contains(line, last) {
			return out
		}
	}
}

// TestStartOnTerminal counts the lines of a start on a terminal and checks that they say what the
// plan carries, that the ledger is exact, the address and how to ask.
func TestStartOnTerminal(t *testing.T) {
	shown, f := pseudoTerminal(t, 200)
	c := exec.Command("vapp", "up", toyProfile(t, ""))
	c.Stderr = f
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill() }) // after a failure it would go on
	lines := until(t, bufio.NewReader(shown), "  ask   curl http://127.0.0.1:")
	// The bar is drawn again in the line above the cursor.
	all := strings.Join(lines, "")
	count := len(lines) - strings.Count(all, "\x1b[1A") - strings.Count(all, "\x1b[A")
	if count > 15 || count < 7 || !strings.Contains(all, `msg="plan: fits" needs=`) ||
		!strings.Contains(all, `msg="ledger: planned bytes = actual bytes" items=`) || !strings.Contains(all, "url=http://127.0.0.1:") {
		t.Errorf("a start of %d lines, want 7 to 15 with plan, ledger and address:\n%s", count, all)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
}

// TestStartInJSON checks that every line of a server with log.format json is one JSON object: of
// its start, a rejected reload, a reload and its end, and of a start that fails.
func TestStartInJSON(t *testing.T) {
	profile := toyProfile(t, `log: {format: "json", level: "debug"}, reload: debounce: "10ms"`)
	good, err := os.ReadFile(profile)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := lockfile.Replace(profile, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command("vapp", "up", profile)
	pipe, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill() }) // after a failure it would go on
	r := bufio.NewReader(pipe)
	lines := until(t, r, `"msg":"how to use it"`)
	write(strings.Replace(string(good), "maxModelLen", "maxModelLem", 1))
	lines = append(lines, until(t, r, `"outcome":"rejected"`)...)
	write(strings.Replace(string(good), `"10ms"`, `"11ms"`, 1))
	lines = append(lines, until(t, r, `"outcome":"applied"`)...)
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	lines = append(lines, strings.SplitAfter(strings.TrimSuffix(string(rest), "\n"), "\n")...)
	write(strings.Replace(string(good), "./toy", "./none", 1))
	var failed strings.Builder
	c = exec.Command("vapp", "up", profile)
	c.Stderr = &failed
	if err := c.Run(); err == nil || c.ProcessState.ExitCode() != 1 {
		t.Errorf("a start without a model ended with %v, want code 1", err)
	}
	if !strings.Contains(failed.String(), `"level":"ERROR"`) {
		t.Errorf("a start without a model printed %q, want an error record", failed.String())
	}
	all := strings.Join(append(lines, failed.String()), "")
	for _, want := range []string{"Loading weights", "plan: fits", "ledger: planned bytes = actual bytes", "Available routes are:", "drained"} {
		if !strings.Contains(all, `"msg":"`+want+`"`) {
			t.Errorf("no record %q", want)
		}
	}
	for _, line := range append(lines, failed.String()) {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			t.Errorf("not a JSON object: %q", line)
		}
	}
}
