package nccl

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vapp.dev/engine/backend"
)

// TestCandidates: a named library is the only one; else the loader's is first and the wheel of a
// virtual environment follows, the newest Python first.
func TestCandidates(t *testing.T) {
	venv := t.TempDir()
	var want []string
	for _, python := range []string{"python3.12", "python3.11"} {
		path := filepath.Join(venv, "lib", python, "site-packages", "nvidia", "nccl", "lib", soname)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		want = append(want, path)
	}
	env := map[string]string{"VIRTUAL_ENV": venv}
	got := candidates(func(s string) string { return env[s] })
	if len(got) < 3 || got[0] != soname || !slices.Equal(got[1:3], want) {
		t.Errorf("%q", got)
	}
	env["VAPP_LIBNCCL"] = "/opt/nccl.so"
	if got := candidates(func(s string) string { return env[s] }); !slices.Equal(got, []string{"/opt/nccl.so"}) {
		t.Errorf("%q", got)
	}
}

// TestConnectRefuses checks impossible ranks and ids, which need no library.
func TestConnectRefuses(t *testing.T) {
	for _, c := range []struct{ bytes, rank, tensor, pipe int }{{IDBytes, 4, 2, 2}, {IDBytes, -1, 2, 2}, {IDBytes, 0, 0, 1}, {7, 0, 2, 1}} {
		if g, err := Connect(make([]byte, c.bytes), c.rank, c.tensor, c.pipe, time.Second); g != nil || !errors.Is(err, backend.ErrUnsupported) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestErrors: each error is one line with its remedy.
func TestErrors(t *testing.T) {
	for want, err := range map[string]error{
		"NCCL is 2.17.1 and 2.18.0 is needed":                                        &TooOld{21701},
		"no NCCL (absent): install":                                                  &NoLibrary{"absent"},
		"rank 1 of 2: not all ranks have":                                            &LateError{Rank: "rank 1 of 2", Waited: time.Second},
		"rank 0 of 2: ncclSend: NCCL: invalid usage (twice): the ranks do not agree": &Error{Rank: "rank 0 of 2", Call: "ncclSend", Code: 5, Name: "invalid usage", Detail: "twice"},
		"restart all ranks with NCCL_DEBUG=WARN":                                     &Error{Rank: "rank 0 of 2", Code: 99},
	} {
		if s := err.Error(); !strings.Contains(s, want) || strings.Contains(s, "\n") {
			t.Errorf("%q lacks %q", s, want)
		}
	}
}

// TestPart: the parts of all ranks are all numbers, each once.
func TestPart(t *testing.T) {
	for _, count := range []int{0, 1, 7, 1 << 30} {
		last := 0
		for r := range 3 {
			begin, end := Part(count, r, 3)
			if begin != last || end < begin {
				t.Errorf("%d: rank %d has %d to %d", count, r, begin, end)
			}
			last = end
		}
		if last != count {
			t.Errorf("%d: parts end at %d", count, last)
		}
	}
}
