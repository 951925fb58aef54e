package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
	"vapp.dev/nearest"
)

// Where is the source of a model's facts.
type Where string

// The sources, the most informative first.
const (
	FromCheckpoint Where = "checkpoint" // config and tensor headers of a directory or file
	FromConfig     Where = "config"     // a config without weights
	FromCatalogue  Where = "catalogue"  // the embedded config of a known name
)

// Source names a model.
type Source struct {
	Path   string // a directory or file, which may not exist
	Name   string // as written in the profile; looked up in the catalogue
	Format string // auto, safetensors, gguf, dummy
	Seed   uint64 // of dummy weights
	// Config is a config.json, or a directory with one. It replaces Path and Name; "": none.
	Config string
	// Absent and Remedy are parts of the error for missing weights: where they were looked for
	// ("at …" or "in …") and how to get them. "": at Path, and the user puts them there.
	Absent, Remedy string
	Build          models.Build
	// Edits change the config before anything is derived from it.
	Edits checkpoint.Edits
	// Pooling is the profile's part for pooling models; Inspect derives Build.Pooling from it.
	Pooling PoolingOptions
	// Draft is a draft model that proposes Build.Draft tokens a step; nil: none. Its Build is
	// not used.
	Draft *Source
}

// Model is an inspected model: its headers and what was derived from them. Nothing is loaded.
type Model struct {
	Source     Source
	Where      Where
	Checkpoint *checkpoint.Checkpoint // headers, with dummy weights if the real ones are absent
	Config     checkpoint.Config
	Family     models.Model
	Dtype      kernels.Format // the checkpoint's dtype of activations, which kvCacheDtype "auto" follows
	Pooling    *Pooling       // the output of a pooling model; nil: the model generates tokens
	Draft      *Model         // the draft model, whose layers are part of this Family; nil: none

	unread string // what the folder holds in place of safetensors; "": nothing
}

// MissingError reports that a model is neither on this machine nor in the catalogue.
type MissingError struct {
	Source Source
	near   string // what is near a path that does not exist
}

func (e *MissingError) Error() string {
	if e.Source.isPath() {
		at := "no such file or folder"
		if e.Source.Path != e.Source.Name {
			at = "no file or folder at " + e.Source.Path
		}
		if strings.HasSuffix(e.near, "?") {
			return fmt.Sprintf("model %s: %s%s", e.Source.Name, at, e.near)
		}
		return fmt.Sprintf("model %s: %s%s; want a GGUF file, a folder with safetensors, or org/name of the hub", e.Source.Name, at, e.near)
	}
	hint := ""
	if near := models.Suggest(e.Source.Name); len(near) > 0 {
		hint = "; did you mean " + strings.Join(near, ", ") + "?"
	}
	where := ""
	if e.Source.Absent != "" {
		where = ", nothing " + e.Source.Absent
	}
	return fmt.Sprintf("model %s: no directory or GGUF file at %s%s, and the catalogue does not know the name%s (\"vapp models\" lists it; \"vapp plan --config\" plans any config.json); %s or set model.source",
		e.Source.Name, e.Source.Path, where, hint, e.Source.remedy())
}

// isPath reports whether the name is a path: it was not looked for in a hub's cache, and is not
// close to a name of the catalogue.
func (s Source) isPath() bool {
	if strings.HasSuffix(strings.ToLower(s.Name), ".gguf") {
		return s.Absent == ""
	}
	return s.Absent == "" && strings.ContainsAny(s.Name, `/\`) && len(models.Suggest(s.Name)) == 0
}

// nearPath returns what there is in place of a path that does not exist: files and folders with
// similar names, the models of the folder, or the part of the path that is missing.
func (s Source) nearPath() string {
	dir, base := filepath.Split(filepath.Clean(s.Path))
	entries, err := os.ReadDir(dir)
	if err != nil {
		missing := filepath.Clean(dir)
		for up := filepath.Dir(missing); up != missing; up = filepath.Dir(missing) {
			if _, err := os.Stat(up); err == nil {
				break
			}
			missing = up
		}
		return fmt.Sprintf(" (%s does not exist)", missing)
	}
	var names, ggufs []string
	for _, e := range entries {
		isGGUF := strings.EqualFold(filepath.Ext(e.Name()), ".gguf")
		if isGGUF {
			ggufs = append(ggufs, e.Name())
		}
		if isGGUF || e.IsDir() {
			names = append(names, e.Name())
		}
	}
	as := func(list []string) string {
		typed := strings.TrimSuffix(s.Name, base)
		out := make([]string, len(list))
		for i, n := range list {
			out[i] = typed + n
		}
		return strings.Join(out, ", ")
	}
	const most = 3
	if near := nearest.Names(base, names, most); len(near) > 0 {
		return "; did you mean " + as(near) + "?"
	}
	if len(ggufs) > 0 {
		return "; its folder has " + as(ggufs[:min(len(ggufs), most)])
	}
	return ""
}

// Suggest returns up to three names of the catalogue that are similar to a name.
func Suggest(name string) []string { return models.Suggest(name) }

func (s Source) remedy() string {
	if s.Remedy != "" {
		return s.Remedy
	}
	return "put the files there"
}

// Inspect reads a model's headers. If the weights are absent, it uses the directory's config,
// then the catalogue's; Loadable then refuses to load the model. The caller closes the Model.
func Inspect(s Source) (*Model, error) {
	m := &Model{Source: s, Where: FromCheckpoint}
	if err := m.open(); err != nil {
		return nil, err
	}
	if err := m.checkSize(); err != nil {
		m.Close()
		return nil, err
	}
	m.Config = m.Checkpoint.Config()
	m.Dtype = models.Dtype(m.Config)
	err := m.openDraft()
	if err == nil {
		err = m.resolvePooling()
	}
	if err == nil {
		m.Family, err = m.build(m.Source.Build)
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// maxBytes is the largest checkpoint that is accepted. A config that describes more is a
// mistake or an attack, and sums of its sizes could overflow.
const maxBytes = 1 << 50

// checkSize refuses a checkpoint whose tensors sum to more than maxBytes.
func (m *Model) checkSize() error {
	var sum int64
	for _, t := range m.Checkpoint.Tensors() {
		if sum += t.Bytes; sum > maxBytes {
			return &checkpoint.Error{File: m.Source.Name, Msg: "asks for more than 2^50 bytes of weights: that is no model"}
		}
	}
	return nil
}

func (m *Model) open() error {
	s := m.Source
	if s.Config != "" {
		return m.openConfig()
	}
	if st, err := os.Stat(s.Path); err == nil {
		return m.openPath(st.IsDir())
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	cfg, known, err := models.EditedConfig(s.Name, s.Edits)
	if err != nil {
		return err
	}
	if !known {
		return &MissingError{Source: s, near: s.nearPath()}
	}
	m.Where = FromCatalogue
	return m.derive(cfg)
}

// openConfig opens the model from Source.Config, without weights.
func (m *Model) openConfig() error {
	if m.Source.Format == "gguf" {
		return fmt.Errorf("model %s: loadFormat is gguf, and a config.json does not say how a GGUF file stores its weights; name the .gguf file as model.source", m.Source.Name)
	}
	cfg, err := m.Source.Edits.ReadConfig(m.Source.Config)
	if err != nil {
		return err
	}
	m.Where, m.Source.Name = FromConfig, m.Source.Config
	return m.derive(cfg)
}

// derive makes a checkpoint of dummy weights with the tensors that cfg describes.
func (m *Model) derive(cfg checkpoint.Config) error {
	tensors, err := models.Tensors(cfg)
	if err != nil {
		return err
	}
	m.Checkpoint, err = checkpoint.Dummy(cfg, tensors, m.Source.Seed)
	return err
}

func (m *Model) openPath(dir bool) (err error) {
	s := m.Source
	isGGUF := !dir
	switch {
	case s.Format == "safetensors" && isGGUF:
		return fmt.Errorf("model %s: loadFormat is safetensors but the source is a file; name the directory", s.Name)
	case s.Format == "gguf" && dir:
		return fmt.Errorf("model %s: loadFormat is gguf but the source is a directory; name the .gguf file", s.Name)
	}
	hasWeights := isGGUF
	for _, name := range []string{"model.safetensors", "model.safetensors.index.json"} {
		if _, err := os.Stat(filepath.Join(s.Path, name)); dir && err == nil {
			hasWeights = true
		}
	}
	if hasWeights && s.Format != "dummy" {
		m.Checkpoint, err = s.Edits.Open(s.Path)
		return err
	}
	meta, err := s.Edits.OpenMetadata(s.Path)
	if err != nil {
		return err
	}
	if dir && !hasWeights && s.Format != "dummy" {
		if m.unread, err = checkpoint.Weightless(s.Path); err != nil {
			meta.Close()
			return err
		}
	}
	m.Where = FromConfig
	tensors := meta.Tensors()
	if !isGGUF {
		if tensors, err = models.Tensors(meta.Config()); err != nil {
			meta.Close()
			return err
		}
	}
	m.Checkpoint, err = meta.WithDummyWeights(tensors, s.Seed)
	if err != nil || !isGGUF {
		meta.Close()
	}
	return err
}

// Loadable returns why the model cannot be loaded. It is nil if real weights are present or
// the profile asks for dummy ones.
func (m *Model) Loadable() error {
	if m.Draft != nil {
		if err := m.Draft.Loadable(); err != nil {
			return fmt.Errorf("draft %w", err)
		}
		if err := m.checkVocabulary(); err != nil {
			return err
		}
	}
	if m.Source.Format == "dummy" || m.Where == FromCheckpoint {
		return nil
	}
	where := m.Source.Absent
	if where == "" {
		where = "at " + m.Source.Path
	}
	if m.unread != "" {
		return fmt.Errorf("model %s: %s %s (planned from the %s)", m.Source.Name, m.Source.Path, m.unread, m.Where)
	}
	return fmt.Errorf("model %s: its weights are not %s (planned from the %s); %s, or set model.loadFormat to \"dummy\"",
		m.Source.Name, where, m.Where, m.Source.remedy())
}

// Close unmaps the files.
func (m *Model) Close() error {
	if m.Draft != nil {
		return errors.Join(m.Draft.Close(), m.Checkpoint.Close())
	}
	return m.Checkpoint.Close()
}
