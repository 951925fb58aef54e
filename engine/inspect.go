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
)

// Where says where a model's facts come from.
type Where string

// The places, from most to least.
const (
	FromCheckpoint Where = "checkpoint" // config and tensors of a directory or file
	FromConfig     Where = "config"     // a config alone: weights are absent
	FromCatalogue  Where = "catalogue"  // the embedded config of a known name
)

// Source names a model.
type Source struct {
	Path   string // a directory or file; may not exist
	Name   string // as the profile writes it, for the catalogue
	Format string // auto, safetensors, gguf, dummy
	Seed   uint64 // of dummy weights
	// Config is a config.json, or a directory with one, that is planned in place of
	// what Path and Name say, and then is the name; "": none.
	Config string
	// Absent is where the weights are not, and Remedy what brings them; "": they
	// are not at Path, and the user puts them there.
	Absent, Remedy string
	Build          models.Build
	// Pool is what the profile says of a model that pools; Inspect makes Build.Pooling of it.
	Pool PoolWish
	// Draft is a second model that proposes Build.Draft tokens a step; nil: none does. Its
	// Build is not read.
	Draft *Source
}

// Model is what is known of a model before anything is loaded.
type Model struct {
	Source     Source
	Where      Where
	Checkpoint *checkpoint.Checkpoint // headers; dummy weights where there are none
	Config     checkpoint.Config
	Family     models.Model
	Dtype      kernels.Format // of activations as stored: what kvCacheDtype auto follows
	Pooling    *Pooling       // what it gives in place of tokens; nil: it generates
	Draft      *Model         // without a Family of its own: it is part of this one's; nil: none
}

// MissingError says that a model's weights are not on this machine.
type MissingError struct{ Source Source }

func (e *MissingError) Error() string {
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

func (s Source) remedy() string {
	if s.Remedy != "" {
		return s.Remedy
	}
	return "put the files there"
}

// Inspect reads headers only. Where the weights are absent it falls back to
// the directory's config, then to the catalogue; Loadable then refuses to load.
// The caller closes the Model.
func Inspect(s Source) (*Model, error) {
	m := &Model{Source: s, Where: FromCheckpoint}
	if err := m.open(); err != nil {
		return nil, err
	}
	if err := m.bounded(); err != nil {
		m.Close()
		return nil, err
	}
	m.Config = m.Checkpoint.Config()
	m.Dtype = models.Dtype(m.Config)
	err := m.openDraft()
	if err == nil {
		err = m.pool()
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

// maxBytes of a checkpoint: beyond it a config is a mistake or an attack, and
// sums would not be numbers any more.
const maxBytes = 1 << 50

// bounded refuses a checkpoint whose tensors sum to more.
func (m *Model) bounded() error {
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
	cfg, known, err := models.CatalogueConfig(s.Name)
	if err != nil {
		return err
	}
	if !known {
		return &MissingError{s}
	}
	m.Where = FromCatalogue
	return m.derive(cfg)
}

// openConfig takes the model's facts from the config of Source.Config alone.
func (m *Model) openConfig() error {
	if m.Source.Format == "gguf" {
		return fmt.Errorf("model %s: loadFormat is gguf, and a config.json does not say how a GGUF file stores its weights; name the .gguf file as model.source", m.Source.Name)
	}
	cfg, err := checkpoint.ReadConfig(m.Source.Config)
	if err != nil {
		return err
	}
	m.Where, m.Source.Name = FromConfig, m.Source.Config
	return m.derive(cfg)
}

// derive makes the checkpoint that a config asks for, of dummy weights.
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
		m.Checkpoint, err = checkpoint.Open(s.Path)
		return err
	}
	meta, err := checkpoint.OpenMetadata(s.Path)
	if err != nil {
		return err
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

// Loadable reports why the model cannot be loaded, nil when it can: real
// weights are there, or the profile asked for dummy ones.
func (m *Model) Loadable() error {
	if m.Draft != nil {
		if err := m.Draft.Loadable(); err != nil {
			return fmt.Errorf("draft %w", err)
		}
		if err := m.sameTokens(); err != nil {
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
