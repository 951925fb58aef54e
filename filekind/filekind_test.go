package filekind

import (
	"strings"
	"testing"
)

// samples are first bytes of files and what they are.
var samples = []struct {
	head string
	want Kind
}{
	{"", Empty},
	{"GGUF\x03\x00\x00\x00", GGUF},
	{"tjgg\x01\x00\x00\x00", GGML},
	{"lmgg", GGML},
	{"\x40\x00\x00\x00\x00\x00\x00\x00{\"__metadata__\":{\"format\":\"pt\"}}", Safetensors},
	{"\x02\x00\x00\x00\x00\x00\x00\x00{}", Safetensors},
	{"\xff\xff\xff\xff\xff\xff\xff\xff{\"a", Binary},
	{"PK\x03\x04" + strings.Repeat("\x00", 22) + "\x10\x00\x00\x00archive/data.pklP", Torch},
	{"PK\x03\x04" + strings.Repeat("\x00", 22) + "\x05\x00\x00\x00a.txt", Zip},
	{"PK\x03\x04", Zip},
	{"PK\x05\x06" + strings.Repeat("\x00", 18), Zip},
	{"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", Pickle},
	{"\x08\x07\x12\x07pytorch\x1a\x051.9.0", ONNX},
	{"\x08\x08\x42\x04\x0a\x00\x10\x0d", ONNX},
	{"\x1f\x8b\x08\x00", Gzip},
	{"\xfd7zXZ\x00\x00", XZ},
	{"BZh91AY&SY\x00", Bzip2},
	{"BZhand: an ordinary text", Text},
	{"\x28\xb5\x2f\xfd\x04", Zstandard},
	{"7z\xbc\xaf\x27\x1c\x00\x04", SevenZip},
	{"model/" + strings.Repeat("\x00", 251) + "ustar\x00", Tar},
	{"\x7fELF\x02\x01\x01", ELF},
	{"MZ\x90\x00", Windows},
	{"MZ is a text too", Text},
	{"\xcf\xfa\xed\xfe\x07", MachO},
	{"%PDF-1.7", PDF},
	{"\x89PNG\r\n\x1a\n", Image},
	{"SQLite format 3\x00", SQLite},
	{"\x89HDF\r\n\x1a\n", HDF5},
	{"version https://git-lfs.github.com/spec/v1\noid sha256:0", LFS},
	{"\n<!DOCTYPE html>\n<html>", HTML},
	{"<HTML><head>", HTML},
	{"<?xml version=\"1.0\"?><Error>", XML},
	{"{\"name\": 1}", JSON},
	{"[1]", JSON},
	{"{name: \"cue\"}", Text},
	{"name: \"a\"\n", Text},
	{"\ufeffname: 1", Text},
	{strings.Repeat("x", HeadBytes-1) + "\xc3", Text}, // the first byte of two
	{"x\xc3(", Binary},
	{strings.Repeat("\x00", 64), Zeros},
	{"\x00\x01\x02\x03", Binary},
}

func TestOf(t *testing.T) {
	seen := map[Kind]bool{}
	for _, s := range samples {
		if got := Of([]byte(s.head)); got != s.want {
			t.Errorf("%.40q is %v, want %v", s.head, got, s.want)
		}
		seen[s.want] = true
	}
	for k := range kinds {
		if !seen[Kind(k)] {
			t.Errorf("no sample of %v", Kind(k))
		}
	}
}

func TestBegins(t *testing.T) {
	for k, want := range map[Kind]string{
		Zip: `starts with "PK": a zip archive`, Empty: "is empty", ELF: "is a program or library (ELF)", Kind(200): "is binary data of an unknown kind",
	} {
		if got := k.Begins(); got != want {
			t.Errorf("%d: %q, want %q", k, got, want)
		}
	}
	if Text.Known() || Binary.Known() || !Zip.Known() || Kind(200).Known() {
		t.Error("Known is true for Text or Binary, or false for Zip")
	}
}

// FuzzOf looks for heads that Of cannot read, and for texts taken for data.
func FuzzOf(f *testing.F) {
	for _, s := range samples {
		f.Add([]byte(s.head))
	}
	f.Fuzz(func(t *testing.T, head []byte) {
		k := Of(head)
		if int(k) >= len(kinds) {
			t.Fatalf("%q has the kind %d", head, k)
		}
		if s := k.Begins(); s == "" || strings.ContainsAny(s, "\n\x00") {
			t.Errorf("%q: %q is no line", head, s)
		}
		if k.IsText() && strings.ContainsRune(string(head), 0) {
			t.Errorf("%q is %v, which is text, and has a NUL", head, k)
		}
	})
}
