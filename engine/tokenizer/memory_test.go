//go:build cgo && linux

package tokenizer

import (
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"
)

// TestEncodingMemory checks that encoding a long text needs only the memory of a window and the
// ids. A separate process measures its peak resident memory.
func TestEncodingMemory(t *testing.T) {
	const child = "VAPP_ENCODING_MEMORY"
	if os.Getenv(child) == "" {
		t.Parallel()
		cmd := exec.Command(os.Args[0], "-test.run=^TestEncodingMemory$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	const bytes, most = 1 << 20, 16 << 20 // at once these bytes take over 200 MiB
	tok := family(t, "llama3")
	text := strings.Repeat("7", bytes)
	ids := make([]int32, 0, bytes)
	encode := func(text string) {
		e := tok.NewEncoding(text, EncodeOptions{})
		for ids = ids[:0]; !e.Done(); {
			var err error
			if ids, err = e.Next(ids); err != nil {
				t.Fatal(err)
			}
		}
	}
	encode(text[:Undivided])
	debug.SetGCPercent(-1)
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Skip("the peak cannot be reset here:", err)
	}
	before := peak(t)
	encode(text)
	if got := peak(t) - before; got > most+4*bytes {
		t.Errorf("encoding %d bytes took %d bytes, want at most %d", bytes, got, most+4*bytes)
	}
	if len(ids) != bytes {
		t.Errorf("%d ids", len(ids))
	}
}

// peak returns this process's peak resident memory in bytes.
func peak(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
