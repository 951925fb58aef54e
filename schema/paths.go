package schema

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Path resolves a path in the profile by the rules of model.source: "/x" and "~/x" are
// absolute, "./x" and "../x" are relative to the profile's folder, and any other path is
// relative to the profile's module root, else to the working directory. If neither exists,
// it returns the path below the root.
func (p *Profile) Path(text string) string { return p.origin.path(text) }

func (o *origin) path(text string) string {
	switch {
	case filepath.IsAbs(text):
		return filepath.Clean(text)
	case text == "~" || strings.HasPrefix(text, "~/"):
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, text[1:])
		}
	case strings.HasPrefix(text, "./"), strings.HasPrefix(text, "../"):
		return filepath.Join(filepath.Dir(o.file), text)
	}
	below := filepath.Join(o.root, text)
	if _, err := os.Stat(below); err == nil {
		return below
	}
	if here, err := filepath.Abs(text); err == nil {
		if _, err := os.Stat(here); err == nil {
			return here
		}
	}
	return below
}

// Policies returns the absolute paths of the policies that apply to the profile, and, in a
// module, also the paths where a policy would apply if it existed.
func (p *Profile) Policies() []string { return slices.Clone(p.origin.policies) }

// Files returns the files of a Reading.
func (p *Profile) Files() []string {
	return append(append(p.origin.files(), p.origin.policies...), p.origin.imported...)
}

// Folders returns the folders of a Reading.
func (p *Profile) Folders() []string { return slices.Clone(p.origin.packages) }

// files returns the profile's own file, if it has one.
func (o *origin) files() []string {
	if o.memory {
		return nil
	}
	return []string{o.file}
}

// InMemory reports whether the profile is in no file.
func (p *Profile) InMemory() bool { return p.origin.memory }

// File returns the absolute path of the profile's own file; of a profile in memory, that of
// the file in the working directory that it would be.
func (p *Profile) File() string { return p.origin.file }
