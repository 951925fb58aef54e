package driver

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWholeLibrary: a program's file is whole, its parts are not, and what is no library is left to the loader.
func TestWholeLibrary(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	if libraryBytes(bytes.NewReader(whole)) == 0 {
		t.Skip("programs of this machine are no ELF files of 64 bits")
	}
	path := filepath.Join(t.TempDir(), "libcublasLt.so.13")
	for _, c := range []struct {
		bytes []byte
		whole bool
	}{
		{whole, true}, {whole[:len(whole)/2], false}, {whole[:len(whole)/100], false}, {whole[:40], false}, {whole[:4], false},
		{[]byte("torn"), true}, {nil, true},
	} {
		if err := os.WriteFile(path, c.bytes, 0o600); err != nil {
			t.Fatal(err)
		}
		err := wholeLibrary(path)
		if (err == nil) != c.whole || err != nil && (!strings.HasPrefix(err.Error(), path+" is not whole: it has ") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%d bytes: %v, want it whole: %v", len(c.bytes), err, c.whole)
		}
	}
	if err := wholeLibrary(path + ".none"); err != nil {
		t.Error(err)
	}
}

// FuzzLibraryBytes checks that any file gives a size, and not a negative one.
func FuzzLibraryBytes(f *testing.F) {
	header := make([]byte, 120)
	copy(header, "\x7fELF\x02\x01")
	f.Add(header)
	f.Add([]byte("\x7fELF\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := libraryBytes(bytes.NewReader(b)); n < 0 {
			t.Error(n)
		}
	})
}
