package image

import (
	"archive/zip"
	"bytes"
	"errors"
	"strings"
	"testing"
)

// archive returns an archive with these entries, each with its own name as bytes; every second is not
// compressed, as in the bundle of scripts/gpu-bundle.sh.
func archive(t testing.TB, names ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i, n := range names {
		w, err := z.CreateHeader(&zip.FileHeader{Name: n, Method: []uint16{zip.Deflate, zip.Store}[i%2]})
		if err == nil {
			_, err = w.Write([]byte(n))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestEntry(t *testing.T) {
	b := archive(t, "sm_80.cubin", "compute_80.ptx")
	for _, name := range []string{"sm_80.cubin", "compute_80.ptx"} {
		if got, err := entry(b, "norm.zip", name); err != nil || string(got) != name {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	_, err := entry(b, "norm.zip", "sm_90a.cubin")
	if none := (*NoEntry)(nil); !errors.As(err, &none) || !strings.HasPrefix(err.Error(), "norm.zip has no sm_90a.cubin, only sm_80.cubin, compute_80.ptx: build") {
		t.Errorf("another GPU: %v", err)
	}
	changed := bytes.Clone(b)
	changed[bytes.Index(b, []byte("sm_80.cubin"))+len("sm_80.cubin")+2] ^= 1 // within the first entry's data
	for what, b := range map[string][]byte{"empty": nil, "cut": b[:len(b)-1], "changed": changed} {
		_, err := entry(b, "norm.zip", "sm_80.cubin")
		if damaged := (*Damaged)(nil); !errors.As(err, &damaged) || !strings.HasPrefix(err.Error(), "norm.zip is damaged (") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// FuzzEntry: no archive panics or takes more memory than an entry may.
func FuzzEntry(f *testing.F) {
	f.Add(archive(f, "sm_80.cubin", "compute_80.ptx"))
	f.Add([]byte("PK"))
	f.Fuzz(func(t *testing.T, b []byte) {
		code, err := entry(b, "norm.zip", "sm_80.cubin")
		if err == nil && len(code) > most {
			t.Errorf("%d bytes", len(code))
		}
		if err != nil && code != nil {
			t.Errorf("%d bytes with %v", len(code), err)
		}
	})
}
