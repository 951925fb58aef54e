package starter

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"vapp.dev/appliance/hub"
	"vapp.dev/engine/models"
	"vapp.dev/filekind"
	"vapp.dev/schema"
)

// Kind is what a Source is.
type Kind string

// The kinds.
const (
	ProfileFile Kind = "profile" // a .cue file, or a folder with one
	File        Kind = "file"    // a GGUF file
	Folder      Kind = "folder"  // a folder with a config.json
	Hub         Kind = "hub"     // a model of the hub, or of the catalogue
)

// Source is what an argument of a command line names.
type Source struct {
	Kind  Kind
	Arg   string // as it was given
	Model string // model.source: an absolute path or a hub name; "" for a profile

	// The parts of a hub name.
	Repo, HubFile, Revision string
}

// Error reports that an argument names nothing, or not one thing. It is one line.
type Error struct{ Arg, Reason string }

func (e *Error) Error() string { return schema.OneLine(fmt.Sprintf("%.200q %s", e.Arg, e.Reason)) }

func (s Source) refuse(format string, args ...any) (Source, error) {
	return Source{}, &Error{s.Arg, fmt.Sprintf(format, args...)}
}

// Find returns what an argument names: a profile, a GGUF file, a Hugging Face folder, a name of
// the hub, or a name of the catalogue. What exists as a path is that path. It looks at names and
// at the first bytes of a file, and uses no network.
func Find(arg string) (Source, error) {
	s := Source{Arg: arg}
	if !utf8.ValidString(arg) || strings.ContainsRune(arg, 0) {
		return s.refuse("is no text in UTF-8, so that no profile can name it; rename it")
	}
	st, err := os.Stat(arg)
	switch {
	case arg == "":
		return s.refuse("is empty; give a profile (.cue), a .gguf file, a model's folder, or org/name")
	case err == nil && st.IsDir():
		return s.folder()
	case err == nil && !st.Mode().IsRegular():
		return s.refuse("is neither a regular file nor a folder; want a profile (.cue), a GGUF file or a folder with safetensors")
	case err == nil:
		return s.file()
	case !errors.Is(err, fs.ErrNotExist):
		if at := (*fs.PathError)(nil); errors.As(err, &at) {
			err = at.Err
		}
		return s.refuse("cannot be read: %v", err)
	}
	return s.name()
}

// file classifies a file by its name, else by its first bytes.
func (s Source) file() (Source, error) {
	switch ext := strings.ToLower(filepath.Ext(s.Arg)); {
	case ext == ".cue":
		s.Kind = ProfileFile
		return s, nil
	case ext == ".gguf":
		return s.at(File, s.Arg)
	case ext == ".safetensors", filepath.Base(s.Arg) == "config.json":
		return s.refuse("is one file of a model; name its folder, %s", filepath.Dir(s.Arg))
	}
	kind := filekind.Of(s.firstBytes())
	if kind == filekind.GGUF {
		return s.at(File, s.Arg)
	}
	return s.refuse("%s; want a profile (.cue), a GGUF file or a folder with safetensors", kind.Begins())
}

// firstBytes returns the first bytes of the file, none if it cannot be read.
func (s Source) firstBytes() []byte {
	f, err := os.Open(s.Arg)
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, filekind.HeadBytes)
	n, _ := io.ReadFull(f, b)
	return b[:n]
}

// folder classifies a folder by its files.
func (s Source) folder() (Source, error) {
	entries, err := os.ReadDir(s.Arg)
	if err != nil {
		return s.refuse("cannot be read: %v", err)
	}
	var profiles, ggufs []string
	config := false
	for _, e := range entries {
		name := e.Name()
		switch {
		case e.IsDir(), name[0] == '.':
		case strings.HasSuffix(name, ".cue") && name != schema.PolicyFile:
			profiles = append(profiles, name)
		case strings.HasSuffix(strings.ToLower(name), ".gguf"):
			ggufs = append(ggufs, name)
		case name == "config.json":
			config = true
		}
	}
	ggufs = filekind.WholeGGUFs(ggufs)
	switch {
	case len(profiles) > 0 && (config || len(ggufs) > 0):
		return s.refuse("has profiles (%s) and a model; name the profile, or the model's file or folder alone", few(profiles))
	case len(profiles) > 0:
		s.Kind = ProfileFile
		return s, nil
	case config:
		return s.at(Folder, s.Arg)
	case len(ggufs) == 1:
		return s.at(File, filepath.Join(s.Arg, ggufs[0]))
	case len(ggufs) > 1:
		return s.refuse("has %d GGUF files, name one: %s", len(ggufs), few(ggufs))
	}
	return s.refuse("has neither a profile (*.cue) nor a model (config.json, *.gguf); name another folder, or download a model with `vapp pull org/name`")
}

// few lists the first names.
func few(names []string) string {
	slices.Sort(names)
	if len(names) > 6 {
		return strings.Join(names[:6], ", ") + fmt.Sprintf(" and %d more", len(names)-6)
	}
	return strings.Join(names, ", ")
}

// at returns the source of a model at a path.
func (s Source) at(k Kind, path string) (Source, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return s.refuse("has no absolute path: %v", err)
	}
	s.Kind, s.Model = k, abs
	return s, nil
}

// name returns the source of an argument that is no path of this machine.
func (s Source) name() (Source, error) {
	n, ok := hub.ParseName(s.Arg)
	lower := strings.ToLower(s.Arg)
	switch {
	case strings.HasSuffix(lower, ".cue"):
		return s.refuse("does not exist (looked at %s); `vapp init` makes a first profile", absolute(s.Arg))
	case !ok && (strings.HasSuffix(lower, ".gguf") || filepath.IsAbs(s.Arg) || strings.HasPrefix(s.Arg, ".") || strings.HasPrefix(s.Arg, "~")):
		return s.refuse("does not exist (looked at %s); a model of the hub is org/name or org/name:file.gguf", absolute(s.Arg))
	case ok:
		s.Kind, s.Repo, s.HubFile, s.Revision = Hub, n.Repo, n.File, n.Revision
		n.Revision = ""
		s.Model = n.String()
		return s, nil
	}
	e, known, err := models.FindEntry(s.Arg)
	if err != nil {
		return Source{}, err
	}
	if !known || strings.ContainsRune(s.Arg, '/') {
		return s.unknown()
	}
	s.Kind, s.Repo = Hub, e.Name
	for _, alias := range e.Aliases {
		if strings.EqualFold(alias[strings.IndexByte(alias, '/')+1:], s.Arg) {
			s.Repo = alias
		}
	}
	s.Model = s.Repo
	return s, nil
}

// unknown refuses a name that is nothing.
func (s Source) unknown() (Source, error) {
	hint := `"vapp models" lists it`
	if near := models.Suggest(s.Arg); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, ", ") + "?"
	}
	return s.refuse("is neither a profile nor a model: no file or folder %s, no name of the hub (org/name), and not in the catalogue; %s", absolute(s.Arg), hint)
}

func absolute(path string) string {
	if at, err := filepath.Abs(path); err == nil {
		return at
	}
	return path
}

// UnknownError reports that a model is neither on this machine nor in the catalogue, so that no
// profile can be made for it. It is one line.
type UnknownError struct {
	Source Source
	Path   string // where a file or folder was looked for
}

func (e *UnknownError) Error() string {
	hint := `"vapp models" lists it`
	if near := models.Suggest(e.Source.Repo); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, ", ") + "?"
	}
	return fmt.Sprintf("%q: no file or folder %s, no such model in the Hugging Face cache, and none in the catalogue; fetch it with `vapp pull %s`, or plan its config.json with --config; %s",
		e.Source.Arg, e.Path, e.Source.Arg, hint)
}
