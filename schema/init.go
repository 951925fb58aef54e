package schema

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// moduleFile is the module.cue that Init writes.
const moduleFile = `module: "profiles.local"
language: version: "v0.16.0"
`

// firstProfile is the profile that Init writes.
const firstProfile = `package profiles

import "vapp.dev/schema"

// Every field, with its meaning, bounds and default, is in
// cue.mod/pkg/vapp.dev/schema/profile.cue.
schema.#Profile & {
	name: "first"
	model: source: "meta-llama/Llama-3.2-1B"
	maxModelLen: "8K"
	memory: kvCache: "1GiB"
}
`

// Init makes dir a folder of profiles that plain CUE tools can also read: a module with
// the schema vendored, and a first profile. It keeps existing files, except that it updates
// the vendored schema. It returns the files that it wrote, relative to dir.
func Init(dir string) ([]string, error) {
	var wrote []string
	write := func(name string, data []byte, replace bool) error {
		path := filepath.Join(dir, name)
		if old, err := os.ReadFile(path); err == nil && (!replace || string(old) == string(data)) {
			return nil
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		wrote = append(wrote, name)
		return os.WriteFile(path, data, 0o644)
	}
	if err := write(filepath.Join("cue.mod", "module.cue"), []byte(moduleFile), false); err != nil {
		return wrote, err
	}
	files, err := fs.Glob(cueFiles, "*.cue")
	if err != nil {
		return wrote, err
	}
	for _, f := range files {
		b, err := fs.ReadFile(cueFiles, f)
		if err != nil {
			return wrote, err
		}
		if err := write(filepath.Join("cue.mod", "pkg", filepath.FromSlash(ImportPath), f), b, true); err != nil {
			return wrote, err
		}
	}
	own, err := filepath.Glob(filepath.Join(dir, "*.cue"))
	if err != nil {
		return wrote, fmt.Errorf("%s: %w", dir, err)
	}
	if len(own) == 0 {
		err = write("first.cue", []byte(firstProfile), false)
	}
	return wrote, err
}
