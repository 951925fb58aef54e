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
func (p *Profile) Path(text string) string {
	switch {
	case filepath.IsAbs(text):
		return filepath.Clean(text)
	case text == "~" || strings.HasPrefix(text, "~/"):
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, text[1:])
		}
	case strings.HasPrefix(text, "./"), strings.HasPrefix(text, "../"):
		return filepath.Join(filepath.Dir(p.origin.file), text)
	}
	below := filepath.Join(p.origin.root, text)
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

// File is the profile's own file, absolute.
func (p *Profile) File() string { return p.origin.file }
