package api

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

func writeGolden(t *testing.T, file string, a *txtar.Archive) {
	if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
		t.Fatal(err)
	}
}
