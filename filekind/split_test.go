package filekind

import (
	"slices"
	"testing"
)

func TestSplitGGUF(t *testing.T) {
	for name, want := range map[string]struct {
		stem         string
		index, count int
	}{
		"m-00001-of-00003.gguf":             {"m", 1, 3},
		"Q4/a-b-Q4_K_M-00002-of-00002.GGUF": {"Q4/a-b-Q4_K_M", 2, 2},
		"m-00004-of-00003.gguf":             {},
		"m-00000-of-00003.gguf":             {},
		"m-1-of-3.gguf":                     {},
		"-00001-of-00003.gguf":              {},
		"m-00001-of-00003.safetensors":      {},
		"m-0000x-of-00003.gguf":             {},
		"m-+0001-of-00003.gguf":             {},
		"m.gguf":                            {},
		"":                                  {},
	} {
		stem, index, count, ok := SplitGGUF(name)
		if stem != want.stem || index != want.index || count != want.count || ok != (want.count > 0) {
			t.Errorf("%s: %q %d %d %v, want %+v", name, stem, index, count, ok, want)
		}
	}
	if got := NthGGUF("a/m-00002-of-00012.GGUF", 11); got != "a/m-00011-of-00012.GGUF" {
		t.Error(got)
	}
	got := WholeGGUFs([]string{"a.gguf", "m-00002-of-00002.gguf", "m-00001-of-00002.gguf", "m-00003-of-00003.gguf", "q/mmproj-F16.gguf", "b.gguf"})
	if want := []string{"a.gguf", "m-00001-of-00002.gguf", "m-00003-of-00003.gguf", "b.gguf"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
