package schema

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Path is where a path that the profile writes leads, by the rules of
// model.source: "/x" and "~/x" as they are, "./x" and "../x" beside the profile,
// anything else below the profile's root, else below the working directory.
// Where neither is there it is the one below the root. The path need not exist.
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

// Policies are the files, absolute, whose change may forbid or allow the profile:
// the policies that bind it, and in its module also those that are not there yet.
func (p *Profile) Policies() []string { return slices.Clone(p.origin.policies) }

// Files are those of a Reading.
func (p *Profile) Files() []string {
	return append(append([]string{p.origin.file}, p.origin.policies...), p.origin.imported...)
}

// Folders are those of a Reading.
func (p *Profile) Folders() []string { return slices.Clone(p.origin.packages) }

// File is the profile's own file, absolute.
func (p *Profile) File() string { return p.origin.file }
