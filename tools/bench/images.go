package bench

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"vapp.dev/tools/bench/workload"
)

// Images are the options of the dataset random-mm, in vLLM's form.
type Images struct {
	Items   int
	Range   float64
	Limits  string // JSON: {"image": 3, "video": 0}
	Buckets string // {(height, width, frames): probability, …}; keys may be in quotes
}

// Defaults of the options, as vLLM's.
const (
	DefaultImageLimits  = `{"image": 255, "video": 1}`
	DefaultImageBuckets = `{(256, 256, 1): 0.5, (720, 1280, 1): 0.5, (720, 1280, 16): 0.0}`
)

// bucketEntry is one entry of Images.Buckets.
var bucketEntry = regexp.MustCompile(`^\s*(["']?)\(\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*,?\s*\)(["']?)\s*:\s*([^\s,:]+)\s*(?:,|$)`)

// parse returns the options that the dataset needs. Its error is an *OptionError.
func (o *Images) parse() (workload.Images, error) {
	out := workload.Images{Items: o.Items, Range: o.Range}
	if err := json.Unmarshal([]byte(o.Limits), &out.Limits); err != nil || out.Limits == nil {
		return out, refuse("--random-mm-limit-mm-per-prompt %q: give a JSON object such as %s", o.Limits, DefaultImageLimits)
	}
	var err error
	if out.Buckets, err = buckets(o.Buckets); err != nil {
		return out, refuse("--random-mm-bucket-config %q: %v; give sizes with probabilities, such as {(256, 256, 1): 0.5, (720, 1280, 1): 0.5}", o.Buckets, err)
	}
	if err := out.Check(); err != nil {
		return out, refuse("--dataset-name random-mm: %v", err)
	}
	return out, nil
}

// buckets parses Images.Buckets.
func buckets(text string) ([]workload.Bucket, error) {
	rest, open := strings.CutPrefix(strings.TrimSpace(text), "{")
	rest, closed := strings.CutSuffix(rest, "}")
	if !open || !closed {
		return nil, fmt.Errorf("it is not in braces")
	}
	var out []workload.Bucket
	for rest = strings.TrimSpace(rest); rest != ""; {
		m := bucketEntry.FindStringSubmatch(rest)
		if m == nil || m[1] != m[5] {
			return nil, fmt.Errorf("%q is not (height, width, frames): probability", clip(rest))
		}
		b := workload.Bucket{}
		for i, to := range []*int{&b.Height, &b.Width, &b.Frames} {
			n, err := strconv.Atoi(m[2+i])
			if err != nil {
				return nil, fmt.Errorf("%s is too large", m[2+i])
			}
			*to = n
		}
		var err error
		if b.Weight, err = strconv.ParseFloat(m[6], 64); err != nil {
			return nil, fmt.Errorf("%q is not a number", m[6])
		}
		out = append(out, b)
		rest = strings.TrimSpace(rest[len(m[0]):])
	}
	return out, nil
}
