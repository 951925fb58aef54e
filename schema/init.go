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

// Package is the CUE package of the profiles in a folder that Init made.
const Package = "profiles"

// FirstFile is the file of the first profile.
const FirstFile = "first.cue"

// firstProfile is the profile that Init writes. Its model needs no account and no GPU, and has a
// chat template.
const firstProfile = `package profiles

import "vapp.dev/schema"

// Every field, with its meaning, bounds and default, is in
// cue.mod/pkg/vapp.dev/schema/profile.cue.
schema.#Profile & {
	name: "first"

	// About 1 GB, downloaded at the first start.
	model: source: "Qwen/Qwen2.5-0.5B-Instruct"

	// Tokens of a prompt and its reply.
	maxModelLen: "8K"

	// The memory of the sequences that run at the same time.
	memory: kvCache: "1GiB"
}
`

// Init makes dir a folder of profiles that plain CUE tools can also read: a module with
// the schema vendored, and a first profile if it has none. It keeps existing files, except
// that it updates the vendored schema. It returns the files that it wrote, relative to dir.
func Init(dir string) ([]string, error) {
	wrote, write, err := initModule(dir)
	if err != nil {
		return *wrote, err
	}
	own, err := filepath.Glob(filepath.Join(dir, "*.cue"))
	if err != nil {
		return *wrote, fmt.Errorf("%s: %w", dir, err)
	}
	if len(own) == 0 {
		err = write(FirstFile, []byte(firstProfile), false)
	}
	return *wrote, err
}

// InitProfile is Init with this profile, in this file of dir, in place of the first one. A
// file that exists is kept.
func InitProfile(dir, file string, text []byte) ([]string, error) {
	wrote, write, err := initModule(dir)
	if err == nil {
		err = write(file, text, false)
	}
	return *wrote, err
}

// initModule writes the module with the schema. write writes a further file, which it adds
// to wrote; replace: also where the file exists.
func initModule(dir string) (list *[]string, write func(name string, data []byte, replace bool) error, err error) {
	var wrote []string
	write = func(name string, data []byte, replace bool) error {
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
		return &wrote, write, err
	}
	for _, f := range cueNames() {
		b, err := cueFiles.ReadFile(f)
		if err != nil {
			return &wrote, write, err
		}
		if err := write(filepath.Join("cue.mod", "pkg", filepath.FromSlash(ImportPath), f), b, true); err != nil {
			return &wrote, write, err
		}
	}
	return &wrote, write, nil
}
