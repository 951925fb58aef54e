//go:build clients

package clients

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// script runs a client in another language, which prints results in the form of checks.py.
func script(t *testing.T, dir, program, file string) map[string]error {
	t.Helper()
	cmd := exec.Command(program, file, base, guarded.url, sighted.url, modelName)
	cmd.Dir = dir
	// The proxy is unreachable, so that the clients can only reach this machine.
	nowhere := "http://127.0.0.1:9"
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1",
		"http_proxy="+nowhere, "https_proxy="+nowhere, "HTTP_PROXY="+nowhere, "HTTPS_PROXY="+nowhere, "RED="+red, "BLUE="+blue)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	done := map[string]error{}
	for _, line := range strings.Split(string(out), "\n") {
		if name, is := strings.CutPrefix(line, "ok "); is {
			done[name] = nil
		} else if rest, is := strings.CutPrefix(line, "FAIL "); is {
			name, why, _ := strings.Cut(rest, ": ")
			done[name] = errors.New(why)
		}
	}
	if err != nil {
		t.Errorf("%s: %v", file, err)
	}
	if strings.Contains(string(out), "FAIL ") || len(done) == 0 {
		t.Log(said.String())
	}
	return done
}

func python(client string) func(t *testing.T) map[string]error {
	return func(t *testing.T) map[string]error {
		program, err := filepath.Abs("../../.venv-clients/bin/python")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(program); err != nil {
			t.Fatalf("%v; `make clients` makes it", err)
		}
		return script(t, "python", program, client+"_client.py")
	}
}

func node(client string) func(t *testing.T) map[string]error {
	return func(t *testing.T) map[string]error {
		program, err := exec.LookPath("node")
		if err == nil {
			_, err = os.Stat("node/node_modules/" + client)
		}
		if err != nil {
			t.Fatalf("%v; `make clients` says what is needed", err)
		}
		return script(t, "node", program, client+"_client.mjs")
	}
}
