package hub

import (
	"encoding/json"
	"slices"
)

// parts says which parts of a file that is being fetched are on the disk. Its
// record lies beside the file, so that the next process goes on from there.
type parts struct {
	Size int64   `json:"size"` // of the file
	Part int64   `json:"part"` // of each part but the last
	Done []int64 `json:"done"`
}

// maxRecord bounds the record: a part takes a number.
const maxRecord = 4 << 20

// readParts reads a record; one that is not of this file and size is as none.
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

// span is where part i lies.
func (p parts) span(i int64) (from, to int64) { return i * p.Part, min(p.Size, (i+1)*p.Part) }

// bytes is how much is there.
func (p parts) bytes() int64 {
	var n int64
	for _, i := range p.Done {
		from, to := p.span(i)
		n += to - from
	}
	return n
}

// write keeps the record, whole or not at all.
func (p parts) write(path string) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return replace(path, b)
}
