//go:build cuda

// Package image is the kernels as they were compiled for devices, in binaries with the tag
// cuda; `make kernels` compiles them.
package image

import (
	"embed"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Directory is the environment variable that names a directory of compiled kernels, which are
// taken in place of the binary's: several binaries may share it.
const Directory = "VAPP_CUDA_KERNELS"

//go:embed built
var built embed.FS

// Fatbin is what the driver loads of a file of kernels, named without its extension; nil in a
// binary that was built without kernels.
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
