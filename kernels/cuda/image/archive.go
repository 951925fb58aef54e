package image

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"strings"
)

// most is the number of bytes that code of one file of kernels may have; the largest has a few
// million.
const most = 64 << 20

// NoEntry means that an archive lacks the code for a device: it was built for other
// architectures.
type NoEntry struct {
	Archive, Name string
	Have          []string
}

func (e *NoEntry) Error() string {
	return fmt.Sprintf("%s has no %s, only %s: build the kernels for this GPU too, by make kernels without VAPP_CUDA_ARCHS", e.Archive, e.Name, strings.Join(e.Have, ", "))
}

// Damaged means that an archive cannot be read.
type Damaged struct {
	Archive string
	Err     error
}

func (e *Damaged) Error() string {
	return fmt.Sprintf("%s is damaged (%v): build the kernels again, by make kernels", e.Archive, e.Err)
}

func (e *Damaged) Unwrap() error { return e.Err }

// entry returns the bytes of an entry of an archive that scripts/kernels.sh made. archive is its
// name in errors: *NoEntry, *Damaged.
func entry(b []byte, archive, name string) ([]byte, error) {
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, &Damaged{archive, err}
	}
	var have []string
	for _, f := range z.File {
		if f.Name != name {
			have = append(have, f.Name)
			continue
		}
		if f.UncompressedSize64 > most {
			return nil, &Damaged{archive, fmt.Errorf("%s of %d bytes", name, f.UncompressedSize64)}
		}
		r, err := f.Open()
		if err != nil {
			return nil, &Damaged{archive, err}
		}
		defer r.Close()
		code, err := io.ReadAll(io.LimitReader(r, int64(f.UncompressedSize64)+1))
		if err == nil && uint64(len(code)) != f.UncompressedSize64 {
			err = fmt.Errorf("%s is longer than %d bytes", name, f.UncompressedSize64)
		}
		if err != nil {
			return nil, &Damaged{archive, err}
		}
		return code, nil
	}
	return nil, &NoEntry{archive, name, have}
}
