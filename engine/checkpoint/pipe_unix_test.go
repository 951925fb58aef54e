//go:build unix

package checkpoint

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestPipes checks that a pipe in place of a file is refused without blocking.
func TestPipes(t *testing.T) {
	for _, name := range []string{"config.json", "model-0.safetensors", "tokenizer_config.json"} {
		dir := modelDir(t)
		path := filepath.Join(dir, name)
		os.Remove(path)
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Skip(err)
		}
		_, err := Open(dir)
		wantError(t, err, path, "")
	}
}
