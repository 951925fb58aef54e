package hub

import (
	"encoding/json"
	"slices"
)

// parts lists the downloaded parts of a file. It is recorded in a file with suffix .parts, so that
// the next process resumes the download.
type parts struct {
	Size int64   `json:"size"` // of the file
	Part int64   `json:"part"` // of each part but the last
	Done []int64 `json:"done"`
}

// maxRecord bounds the size of the record, which has one number per part.
const maxRecord = 4 << 20

// readParts reads a record. A record of another file size or part size counts as empty.
func readParts(path string, size, part int64) parts {
	none := parts{Size: size, Part: part}
	b, err := readAtMost(path, maxRecord)
	if err != nil {
		return none
	}
	p, ok := parseParts(b)
	if !ok || p.Size != size || p.Part != part {
		return none
	}
	return p
}

func parseParts(b []byte) (parts, bool) {
	var p parts
	if json.Unmarshal(b, &p) != nil || p.Size < 0 || p.Size > maxSize || p.Part <= 0 {
		return p, false
	}
	slices.Sort(p.Done)
	p.Done = slices.Compact(p.Done)
	for _, i := range p.Done {
		if i < 0 || i >= p.count() {
			return p, false
		}
	}
	return p, true
}

func (p parts) count() int64 { return (p.Size + p.Part - 1) / p.Part }

func (p parts) has(i int64) bool { return slices.Contains(p.Done, i) }

// span returns the byte range of part i.
func (p parts) span(i int64) (from, to int64) { return i * p.Part, min(p.Size, (i+1)*p.Part) }

// bytes returns the number of downloaded bytes.
func (p parts) bytes() int64 {
	var n int64
	for _, i := range p.Done {
		from, to := p.span(i)
		n += to - from
	}
	return n
}

// write writes the record atomically.
func (p parts) write(path string) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return replace(path, b)
}
