//go:build unix

package schema

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPipe loads a named pipe, which no process writes: opening it would wait forever.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.cue")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	if _, err := Load(path); err == nil || !strings.HasSuffix(err.Error(), "p.cue: is not a regular file") {
		t.Error(err)
	}
}
