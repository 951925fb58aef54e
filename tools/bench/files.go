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

// Place is where results are saved.
type Place struct {
	// Dir is "" for the working directory, Name "" for a name made from the run.
	Dir, Name string
	// Append appends the result to the file as a line; otherwise the file is overwritten.
	Append bool
	// Detailed also saves the traces of each request.
	Detailed bool
}

// Save writes a result and returns its path.
func (p Place) Save(r *report.Result) (string, error) {
	text, err := r.JSON(p.Detailed)
	if err != nil {
		return "", err
	}
	return p.write(r.FileName(), text)
}

// SaveSweep writes the runs of a sweep and returns the path.
func (p Place) SaveSweep(s report.Sweep) (string, error) {
	text, err := s.JSON(p.Detailed)
	if err != nil {
		return "", err
	}
	first := s[0]
	first.MaxConcurrency = 0
	return p.write("sweep-"+first.FileName(), text)
}

// SaveTimeline writes the HTML timeline of a run next to the file of Save, and returns its path.
func (p Place) SaveTimeline(r *report.Result, h report.Thresholds) (string, error) {
	path := p.path(r.FileName())
	path = strings.TrimSuffix(path, filepath.Ext(path)) + ".timeline.html"
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, []byte(r.Timeline(h)), 0o666)
}

// path returns the path of a result with this name.
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

// PagePath returns the path of the HTML page that belongs to a saved result.
func PagePath(path string) string {
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

// Compare returns the comparison of the results of two files.
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

// CompareWith returns the comparison of a file's results with a result of this run.
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
