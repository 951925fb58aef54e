package bench

import (
	"context"
	"fmt"
	"io"
	"os"

	"vapp.dev/tools/bench/workload"
)

// Dataset selects the dataset of prompts and its options.
type Dataset struct {
	Name string
	// Path is the file of sharegpt or custom; for sonnet it replaces the built-in verse.
	Path string
	// Input and Output override the lengths of the dataset; 0: not.
	Input, Output int
	NoOversample  bool
	// InOrder keeps the order of a custom file.
	InOrder bool
	Random  workload.Random
	Sonnet  workload.Sonnet
	Prefix  workload.Prefix
	// Images are those of random-mm; nil: the command sends none.
	Images *Images
	// ShareGPTOutput is the output length of sharegpt; 0: the length of each reference answer.
	ShareGPTOutput int
	// CustomOutput is the output length of custom lines that have none.
	CustomOutput int
}

// Datasets lists the names of the datasets, ServedDatasets also those that only a server answers.
const (
	Datasets       = "random, sharegpt, custom, sonnet, prefix_repetition"
	ServedDatasets = Datasets + ", random-mm"
)

// check checks the options that can be checked without reading a file.
func (d *Dataset) check() error {
	switch d.Name {
	case "sharegpt", "custom":
		if d.Path == "" {
			return refuse("--dataset-name %s: name the file with --dataset-path", d.Name)
		}
	case "random", "prefix_repetition", "random-mm":
		if d.Path != "" {
			return refuse("--dataset-path %s: %s prompts come from no file; name the dataset with --dataset-name", d.Path, d.Name)
		}
		if d.Name == "random-mm" && d.Images == nil {
			return refuse("--dataset-name random-mm: its images are sent to a server; use vapp bench serve")
		}
	case "sonnet":
	default:
		names := Datasets
		if d.Images != nil {
			names = ServedDatasets
		}
		return refuse("--dataset-name %q: there are %s", d.Name, names)
	}
	for _, n := range []struct {
		flag  string
		value int
	}{{"input-len", d.Input}, {"output-len", d.Output}, {"sharegpt-output-len", d.ShareGPTOutput}} {
		if n.value < 0 {
			return refuse("--%s %d: give 1 or more; 0 leaves it to the dataset", n.flag, n.value)
		}
	}
	if d.Input > 0 && (d.Name == "sharegpt" || d.Name == "custom") {
		return refuse("--input-len %d: prompts of %s have fixed lengths", d.Input, d.Name)
	}
	if d.Name == "random-mm" {
		if _, err := d.Images.parse(); err != nil {
			return err
		}
	}
	if d.Name == "custom" && d.CustomOutput < 1 {
		return refuse("--custom-output-len %d: give 1 or more", d.CustomOutput)
	}
	return nil
}

// Make makes the requests.
func (d *Dataset) Make(ctx context.Context, m workload.Maker) ([]workload.Request, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	m.NoOversample = d.NoOversample
	switch d.Name {
	case "sharegpt":
		turns, err := readFile(d.Path, workload.Conversations)
		if err != nil {
			return nil, err
		}
		return m.ShareGPT(ctx, turns, over(d.Output, d.ShareGPTOutput))
	case "custom":
		lines, err := readFile(d.Path, workload.Lines)
		if err != nil {
			return nil, err
		}
		return m.Custom(ctx, lines, d.Output, d.CustomOutput, d.InOrder)
	case "sonnet":
		return d.sonnet(ctx, m)
	case "prefix_repetition":
		p := d.Prefix
		p.Output = over(d.Output, p.Output)
		if d.Input > 0 {
			if d.Input <= p.Prefix {
				return nil, refuse("--input-len %d: the shared prefix alone has %d tokens (--prefix-repetition-prefix-len); give more", d.Input, p.Prefix)
			}
			p.Suffix = d.Input - p.Prefix
		}
		return m.Prefix(ctx, p)
	}
	r := d.Random
	r.Input, r.Output = over(d.Input, r.Input), over(d.Output, r.Output)
	if d.Name == "random-mm" {
		images, err := d.Images.parse()
		if err != nil {
			return nil, err
		}
		return m.RandomImages(ctx, r, images)
	}
	return m.Random(ctx, r)
}

func (d *Dataset) sonnet(ctx context.Context, m workload.Maker) ([]workload.Request, error) {
	s, text := d.Sonnet, ""
	s.Input, s.Output = over(d.Input, s.Input), over(d.Output, s.Output)
	if d.Path != "" {
		var err error
		if text, err = readFile(d.Path, func(r io.Reader) (string, error) { b, err := io.ReadAll(r); return string(b), err }); err != nil {
			return nil, err
		}
	}
	return m.Sonnet(ctx, s, text)
}

// over returns given, or otherwise where given is 0.
func over(given, otherwise int) int {
	if given > 0 {
		return given
	}
	return otherwise
}

// maxDataset bounds a file of prompts, in bytes.
const maxDataset = 4 << 30

// readFile reads a file of prompts; errors begin with its name.
func readFile[T any](path string, read func(io.Reader) (T, error)) (T, error) {
	var none T
	f, err := os.Open(path)
	if err != nil {
		return none, fmt.Errorf("--dataset-path: %w", err)
	}
	defer f.Close()
	out, err := read(io.LimitReader(f, maxDataset))
	if err != nil {
		return none, fmt.Errorf("%s: %w", path, err)
	}
	return out, nil
}
