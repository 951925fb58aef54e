package driver

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
)

// wholeLibrary returns an error for the file of a library that is shorter than its header says: half of a
// download. The loader would map it, and reading what is missing would end the process. Files that
// are no libraries for 64 bits are left to the loader, which names them.
func wholeLibrary(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return nil // the loader says so too
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	if need := libraryBytes(f); need > info.Size() {
		return fmt.Errorf("%s is not whole: it has %d of the %d bytes that its header names", path, info.Size(), need)
	}
	return nil
}

// libraryBytes returns the least size of a library by its header: the end of its segments and of its
// table of sections; 0 for what is no library of little-endian 64 bits.
func libraryBytes(r io.ReaderAt) int64 {
	var h elf.Header64
	b := make([]byte, binary.Size(h))
	if n, _ := r.ReadAt(b, 0); n < len(b) {
		if n >= 4 && string(b[:4]) == elf.ELFMAG {
			return int64(len(b)) // it ends within its header
		}
		return 0
	}
	if err := binary.Read(bytes.NewReader(b), binary.LittleEndian, &h); err != nil || string(h.Ident[:4]) != elf.ELFMAG ||
		h.Ident[elf.EI_CLASS] != byte(elf.ELFCLASS64) || h.Ident[elf.EI_DATA] != byte(elf.ELFDATA2LSB) {
		return 0
	}
	end := func(at, n uint64) int64 {
		if at >= 1<<62 || n >= 1<<62 {
			return 1 << 62 // of no file
		}
		return int64(at + n)
	}
	need := max(end(h.Shoff, uint64(h.Shnum)*uint64(h.Shentsize)), end(h.Phoff, uint64(h.Phnum)*uint64(h.Phentsize)))
	var p elf.Prog64
	b = make([]byte, binary.Size(p))
	for i := range uint64(h.Phnum) {
		if h.Phoff > 1<<62 {
			break
		}
		if n, _ := r.ReadAt(b, int64(h.Phoff+i*uint64(h.Phentsize))); n < len(b) {
			break // need is beyond the file
		}
		if binary.Read(bytes.NewReader(b), binary.LittleEndian, &p) == nil {
			need = max(need, end(p.Off, p.Filesz))
		}
	}
	return need
}
