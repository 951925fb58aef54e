//go:build clients

package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestPython runs openai_client.py with the Python that `make clients` set up.
func TestPython(t *testing.T) {
	python, err := filepath.Abs("../../.venv-clients/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(python); err != nil {
		t.Fatalf("%v; `make clients` installs it", err)
	}
	c := exec.Command(python, "openai_client.py", base, modelName)
	out, err := c.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}
