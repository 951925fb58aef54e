//go:build cuda

// Package image holds the kernels as compiled for devices by `make kernels`, in binaries with
// the tag cuda.
//
// It must not know the kernels or the driver: it only returns files. Start reading at Fatbin.
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

// Fatbin returns a file of kernels, which is named without its extension, for the driver to
// load. It returns nil in a binary that was built without kernels.
func Fatbin(stem string) ([]byte, error) {
	if dir := os.Getenv(Directory); dir != "" {
		return os.ReadFile(filepath.Join(dir, stem+".fatbin"))
	}
	b, err := built.ReadFile("built/" + stem + ".fatbin")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}
