// Package starter makes the first profile of a model: what a command line names becomes a Source,
// and a Source with its figures the text of a profile, which gives the reason of each value. It
// must not plan, download or read models; appliance gives it the figures. Start reading at Find in
// find.go and Profile.Text in this file.
package starter

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"cuelang.org/go/cue/literal"

	"vapp.dev/filekind"
	"vapp.dev/schema"
)

// Profile is what a made profile says.
type Profile struct {
	Source  Source
	Package string // of CUE; "": none
	Fields  []Field
}

// Field is a value and why it was chosen.
type Field struct {
	Path  string // such as memory.kvCache
	Value string // CUE
	Why   string
}

// Text returns the profile as CUE, a comment with the reason above each field. It is the same text
// for the same Profile, and a profile whatever the source's name contains.
func (p Profile) Text() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "// A profile for %s, made by vapp.\n// docs/reference/profile.md has every field with its meaning and default; `vapp vet` checks\n// an edited profile.\n", comment(p.Source.Arg))
	if p.Package != "" {
		fmt.Fprintf(&b, "package %s\n\n", p.Package)
	}
	fmt.Fprintf(&b, "import %s\n\nschema.#Profile & {\n", quote(schema.ImportPath))
	for _, f := range p.all() {
		for _, line := range wrap(comment(f.Why), 92) {
			fmt.Fprintf(&b, "\t// %s\n", line)
		}
		fmt.Fprintf(&b, "\t%s: %s\n", strings.ReplaceAll(f.Path, ".", ": "), f.Value)
	}
	b.WriteString("}\n")
	return []byte(b.String())
}

// all returns the fields that the source determines, then the others.
func (p Profile) all() []Field {
	s := p.Source
	list := []Field{{"name", quote(s.ProfileName()), "the name in logs and metrics, from the name of the model"}}
	list = append(list, Field{"model.source", quote(s.Model), s.why()})
	if s.Revision != "" {
		list = append(list, Field{"model.revision", quote(s.Revision), "the revision that was asked for"})
	}
	list = append(list, Field{"serve.servedModelName", "[" + quote(s.ServedName()) + "]", "the model name that requests give"})
	return append(list, p.Fields...)
}

func (s Source) why() string {
	switch s.Kind {
	case File:
		return "the model file, by its whole path so that this profile can be moved"
	case Folder:
		return "the model's folder, by its whole path so that this profile can be moved"
	}
	return "the model's name on the Hugging Face hub; vapp pull, up and run download it"
}

// maxName is the longest name of a profile.
const maxName = 128

// ProfileName returns a name for the profile, which schema.#Name allows.
func (s Source) ProfileName() string {
	name := strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (r == '.' || r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z') {
			return r
		}
		return '-'
	}, s.short())
	name = strings.TrimLeft(name, "-._")
	name = strings.TrimRight(name[:min(len(name), maxName)], "-._")
	if name == "" {
		return "model"
	}
	return name
}

// ServedName returns the model name for requests: the hub's name, or the profile's.
func (s Source) ServedName() string {
	if s.Kind == Hub {
		return s.Repo
	}
	return s.ProfileName()
}

// short returns the last part of the source's name without the ending of its format.
func (s Source) short() string {
	if s.Kind == Hub {
		if s.HubFile != "" {
			return withoutGGUF(filepath.Base(s.HubFile))
		}
		return filepath.Base(s.Repo)
	}
	return withoutGGUF(filepath.Base(s.Model))
}

func withoutGGUF(name string) string {
	if stem, _, _, ok := filekind.SplitGGUF(name); ok {
		return stem
	}
	if strings.EqualFold(filepath.Ext(name), ".gguf") {
		return name[:len(name)-len(".gguf")]
	}
	return name
}

// quote returns text as a CUE string.
func quote(text string) string { return literal.String.Quote(text) }

// comment returns text that stays within one comment: without line ends and control characters.
func comment(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == '\u2028' || r == '\u2029' || r == utf8.RuneError || r == '\u0085' {
			return ' '
		}
		return r
	}, text)
	return schema.OneLine(strings.ToValidUTF8(text, " "))
}

// wrap divides text into lines of at most width bytes where it has spaces.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
