// Package filekind names what a file is by its first bytes, for the errors about a file that is
// not the wanted one: a zip archive in place of a model, a model in place of a profile. It also
// parses the names of GGUF models that are split into several files. It must not open files, and it
// must not import anything of this tree, so that every layer may use it. Start reading at Of.
package filekind

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode/utf8"
)

// HeadBytes is the number of first bytes that Of needs.
const HeadBytes = 1024

// Kind is a kind of file.
type Kind uint8

// The kinds. Text is text of no other kind, Binary is all else.
const (
	Binary Kind = iota
	Text
	Empty
	Zeros
	GGUF
	GGML
	Safetensors
	Torch
	Pickle
	ONNX
	HDF5
	Zip
	Gzip
	XZ
	Bzip2
	Zstandard
	SevenZip
	Tar
	ELF
	Windows
	MachO
	PDF
	Image
	SQLite
	LFS
	HTML
	XML
	JSON
)

// kinds has the words for each Kind: its name with article, and its first characters where a
// reader can see them in the file.
var kinds = [...]struct{ name, starts string }{
	Binary:      {"binary data of an unknown kind", ""},
	Text:        {"text", ""},
	Empty:       {"empty", ""},
	Zeros:       {"all zero bytes, as of an unfinished download", ""},
	GGUF:        {"a GGUF model", "GGUF"},
	GGML:        {"a model in GGML's format before GGUF", ""},
	Safetensors: {"safetensors weights", ""},
	Torch:       {"a PyTorch checkpoint (a zip archive of pickles)", "PK"},
	Pickle:      {"a Python pickle, such as an old PyTorch checkpoint", ""},
	ONNX:        {"an ONNX model", ""},
	HDF5:        {"an HDF5 file, such as Keras weights", ""},
	Zip:         {"a zip archive", "PK"},
	Gzip:        {"a gzip archive", ""},
	XZ:          {"an xz archive", ""},
	Bzip2:       {"a bzip2 archive", "BZh"},
	Zstandard:   {"a zstandard archive", ""},
	SevenZip:    {"a 7z archive", "7z"},
	Tar:         {"a tar archive", ""},
	ELF:         {"a program or library (ELF)", ""},
	Windows:     {"a Windows program", "MZ"},
	MachO:       {"a macOS program", ""},
	PDF:         {"a PDF document", "%PDF"},
	Image:       {"an image", ""},
	SQLite:      {"an SQLite database", "SQLite"},
	LFS:         {"a Git LFS pointer, which stands for the file", "version https://git-lfs"},
	HTML:        {"an HTML page, saved in place of the file", "<"},
	XML:         {"an XML document", "<?xml"},
	JSON:        {"JSON", ""},
}

// String returns the kind in words, with its article: "a zip archive".
func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k].name
	}
	return kinds[Binary].name
}

// Begins returns the predicate of a sentence about the file: `starts with "PK": a zip archive`, or
// "is empty".
func (k Kind) Begins() string {
	if int(k) < len(kinds) && kinds[k].starts != "" {
		return `starts with "` + kinds[k].starts + `": ` + k.String()
	}
	return "is " + k.String()
}

// Known reports whether the kind says more than "text" or "binary data".
func (k Kind) Known() bool { return k != Binary && k != Text && int(k) < len(kinds) }

// IsText reports whether a file of the kind is text.
func (k Kind) IsText() bool {
	return k == Text || k == Empty || k == LFS || k == HTML || k == XML || k == JSON
}

// magics are the first bytes of kinds.
var magics = []struct {
	bytes string
	kind  Kind
}{
	{"GGUF", GGUF},
	// As 32-bit numbers in little-endian order: ggml, ggmf, ggjt, ggla.
	{"lmgg", GGML}, {"fmgg", GGML}, {"tjgg", GGML}, {"algg", GGML},
	{"\x1f\x8b", Gzip}, {"\xfd7zXZ\x00", XZ}, {"BZh", Bzip2}, {"\x28\xb5\x2f\xfd", Zstandard}, {"7z\xbc\xaf\x27\x1c", SevenZip},
	{"\x7fELF", ELF}, {"MZ", Windows}, {"\xcf\xfa\xed\xfe", MachO}, {"\xca\xfe\xba\xbe", MachO},
	{"%PDF", PDF}, {"\x89PNG", Image}, {"\xff\xd8\xff", Image}, {"GIF8", Image}, {"SQLite format 3", SQLite}, {"\x89HDF\r\n\x1a\n", HDF5},
}

// Of returns the kind of a file whose first bytes are head: HeadBytes of them, or all of a shorter
// file.
func Of(head []byte) Kind {
	if len(head) == 0 {
		return Empty
	}
	for _, m := range magics {
		if bytes.HasPrefix(head, []byte(m.bytes)) && !(m.kind == Windows && isText(head)) && !(m.kind == Bzip2 && isText(head)) {
			return m.kind
		}
	}
	switch {
	case bytes.HasPrefix(head, []byte("PK\x03\x04")), bytes.HasPrefix(head, []byte("PK\x05\x06")):
		return zipKind(head)
	case isSafetensors(head):
		return Safetensors
	case len(head) > 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5:
		return Pickle
	case isONNX(head):
		return ONNX
	case len(head) >= 262 && string(head[257:262]) == "ustar":
		return Tar
	case len(bytes.Trim(head, "\x00")) == 0:
		return Zeros
	case isText(head):
		return textKind(head)
	}
	return Binary
}

// zipKind separates PyTorch's checkpoints, whose first entry is NAME/data.pkl, from other archives.
func zipKind(head []byte) Kind {
	const fixed = 30 // bytes of an entry before its name
	if len(head) > fixed {
		n := int(binary.LittleEndian.Uint16(head[26:]))
		name := head[fixed:min(len(head), fixed+n)]
		if bytes.HasSuffix(name, []byte("data.pkl")) {
			return Torch
		}
	}
	return Zip
}

// isSafetensors reports whether head is {u64 length, JSON object}.
func isSafetensors(head []byte) bool {
	const most = 100_000_000 // of the header, as in the reference implementation
	if len(head) < 10 || head[8] != '{' {
		return false
	}
	n := binary.LittleEndian.Uint64(head)
	return n >= 2 && n <= most && strings.IndexByte("\" \t\n}", head[9]) >= 0
}

// isONNX reports whether head is a protobuf of ONNX: a small version (field 1), then the producer's
// name (field 2) or opset_import (field 8).
func isONNX(head []byte) bool {
	if len(head) < 4 || head[0] != 0x08 || head[1] == 0 || head[1] > 32 {
		return false
	}
	n := int(head[3])
	switch head[2] {
	case 0x12:
		return n > 0 && len(head) >= 4+n && isText(head[4:4+n])
	case 0x42:
		return n > 0
	}
	return false
}

// isText reports whether head is UTF-8 without control characters, except for a rune that the end
// of head cuts.
func isText(head []byte) bool {
	for len(head) > 0 {
		r, n := utf8.DecodeRune(head)
		switch {
		case r == utf8.RuneError && n == 1:
			return len(head) < utf8.UTFMax && !utf8.FullRune(head)
		case r < ' ' && r != '\t' && r != '\n' && r != '\r' && r != '\f', r == 0x7f:
			return false
		}
		head = head[n:]
	}
	return true
}

// textKind returns the kind of a text by its first word.
func textKind(head []byte) Kind {
	text := strings.ToLower(strings.TrimSpace(strings.TrimPrefix(string(head), "\ufeff")))
	switch {
	case strings.HasPrefix(text, "version https://git-lfs.github.com/spec/"):
		return LFS
	case strings.HasPrefix(text, "<!doctype html"), strings.HasPrefix(text, "<html"), strings.HasPrefix(text, "<head"):
		return HTML
	case strings.HasPrefix(text, "<?xml"):
		return XML
	case strings.HasPrefix(text, "{"):
		if rest := strings.TrimSpace(text[1:]); rest != "" && strings.IndexByte("\"}", rest[0]) >= 0 {
			return JSON
		}
	case strings.HasPrefix(text, "["):
		if rest := strings.TrimSpace(text[1:]); rest != "" && strings.IndexByte("\"{[]0123456789-", rest[0]) >= 0 {
			return JSON
		}
	}
	return Text
}
