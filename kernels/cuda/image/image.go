//go:build cuda

// Package image holds the kernels as compiled for devices by `make kernels`, in binaries with
// the tag cuda.
//
// It must not know the kernels or the driver: it only returns files. Start reading at Code.
package image

import (
	"embed"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Directory is the environment variable that names a directory of compiled kernels to use
// instead of those in the binary: several binaries may share it.
const Directory = "VAPP_CUDA_KERNELS"

//go:embed built
var built embed.FS

// Code returns one form of a file of kernels for the driver to load: the entry of this name
// ("sm_90a.cubin", "compute_80.ptx") in the file's archive. The file is named without its
// extension. Code returns nil in a binary that was built without kernels. Errors: *NoEntry,
// *Damaged, those of reading the archive.
func Code(stem, name string) ([]byte, error) {
	file := stem + ".zip"
	if dir := os.Getenv(Directory); dir != "" {
		path := filepath.Join(dir, file)
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		return entry(b, path, name)
	}
	b, err := built.ReadFile("built/" + file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return entry(b, file, name)
}
