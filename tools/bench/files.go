package bench

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"vapp.dev/tools/bench/report"
)

// Place says where results are saved.
type Place struct {
	// Dir and Name may be empty: the working directory, and a name made of the run.
	Dir, Name string
	// Append makes a result a further line of the file; else the file is made anew.
	Append bool
	// Detailed saves what was seen of each request too.
	Detailed bool
}

// Save writes a result and returns where.
func (p Place) Save(r *report.Result) (string, error) {
	text, err := r.JSON(p.Detailed)
	if err != nil {
		return "", err
	}
	return p.write(r.FileName(), text)
}

// SaveSweep writes the runs of a sweep and returns where.
func (p Place) SaveSweep(s report.Sweep) (string, error) {
	text, err := s.JSON(p.Detailed)
	if err != nil {
		return "", err
	}
	first := s[0]
	first.MaxConcurrency = 0
	return p.write("sweep-"+first.FileName(), text)
}

// SaveTimeline writes the page of a run's requests over time and returns where: beside
// what Save writes.
func (p Place) SaveTimeline(r *report.Result, h report.Thresholds) (string, error) {
	path := p.path(r.FileName())
	path = strings.TrimSuffix(path, filepath.Ext(path)) + ".timeline.html"
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, []byte(r.Timeline(h)), 0o666)
}

// path is where a result of that name is saved.
func (p Place) path(name string) string {
	if p.Name != "" {
		name = p.Name
	}
	return filepath.Join(p.Dir, name)
}

func (p Place) write(name string, text []byte) (string, error) {
	path := p.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return "", err
	}
	mode := os.O_TRUNC
	if p.Append {
		mode = os.O_APPEND
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|mode, 0o666)
	if err != nil {
		return "", err
	}
	_, err = f.Write(append(text, '\n'))
	return path, errors.Join(err, f.Close())
}

// Beside is the path of a page that belongs to a saved result.
func Beside(path string) string {
	return strings.TrimSuffix(path, filepath.Ext(path)) + ".html"
}

// maxResult bounds a file of results, in bytes.
const maxResult = 1 << 30

// ReadResults reads a file of results; errors begin with its name.
func ReadResults(path string) (report.Named, error) {
	f, err := os.Open(path)
	if err != nil {
		return report.Named{}, fmt.Errorf("bench: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxResult+1))
	if err != nil {
		return report.Named{}, fmt.Errorf("bench: %w", err)
	}
	if len(text) > maxResult {
		return report.Named{}, fmt.Errorf("%s: more than %d bytes; results without --save-detailed are small", path, maxResult)
	}
	results, err := report.ParseSaved(text)
	if err != nil {
		return report.Named{}, fmt.Errorf("%s:%w", path, err)
	}
	return report.Named{Name: path, Results: results}, nil
}

// Compare sets the results of two files side by side.
func Compare(a, b string) (string, error) {
	x, err := ReadResults(a)
	if err != nil {
		return "", err
	}
	y, err := ReadResults(b)
	if err != nil {
		return "", err
	}
	return report.Compare(x, y)
}

// CompareWith sets the results of a file beside one of this run.
func CompareWith(a string, r *report.Result) (string, error) {
	x, err := ReadResults(a)
	if err != nil {
		return "", err
	}
	text, err := r.JSON(false)
	if err != nil {
		return "", err
	}
	here, err := report.ParseSaved(text)
	if err != nil {
		return "", err
	}
	return report.Compare(x, report.Named{Name: "this run", Results: here})
}
