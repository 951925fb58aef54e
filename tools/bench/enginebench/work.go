package enginebench

import (
	"fmt"
	"regexp"
	"strconv"
)

// Work is what one row runs: Streams equal requests at once, each with Prompt prompt tokens
// and Output generated tokens.
type Work struct {
	Streams int `json:"streams"`
	Prompt  int `json:"prompt"`
	Output  int `json:"output"`
}

var workForm = regexp.MustCompile(`^(?:(\d+)x)?(\d+)\+(\d+)$`)

// Bounds of a row: far more than a machine can run, small enough that sums do not overflow.
const maxWork, maxStreams = 1 << 24, 1 << 14

// parseWork parses STREAMSxPROMPT+OUTPUT, or PROMPT+OUTPUT for one stream.
func parseWork(s string) (Work, error) {
	m := workForm.FindStringSubmatch(s)
	if m == nil {
		return Work{}, fmt.Errorf(`bench: --work %q: want PROMPT+OUTPUT or STREAMSxPROMPT+OUTPUT, as "16x128+64"`, s)
	}
	if m[1] == "" {
		m[1] = "1"
	}
	var n [3]int
	for i, limit := range []int{maxStreams, maxWork, maxWork} {
		var err error
		if n[i], err = strconv.Atoi(m[i+1]); err != nil || n[i] < 1 || n[i] > limit {
			return Work{}, fmt.Errorf("bench: --work %q: %s is not within 1 and %d", s, m[i+1], limit)
		}
	}
	return Work{n[0], n[1], n[2]}, nil
}

// rows returns the rows to measure: those of o.Work, else one stream and o.Streams streams of
// the same length.
func (o Options) rows() ([]Work, error) {
	if len(o.Work) == 0 {
		return []Work{{1, o.Prompt, o.Output}, {o.Streams, o.Prompt, o.Output}}, nil
	}
	var out []Work
	for _, s := range o.Work {
		w, err := parseWork(s)
		if err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	return out, nil
}

// blockSize is the number of tokens of a KV block.
const blockSize = 16

// capacityFor returns the maxima over the rows: the length of a sequence in tokens, rounded up
// to whole blocks; the streams at once; and the tokens held at once.
func capacityFor(rows []Work) (length, streams, tokens int) {
	for _, w := range rows {
		n := (w.Prompt + w.Output + blockSize - 1) / blockSize * blockSize
		length, streams, tokens = max(length, n), max(streams, w.Streams), max(tokens, n*w.Streams)
	}
	return length, streams, tokens
}

// streamsText returns "one stream" or "N streams".
func (w Work) streamsText() string {
	if w.Streams == 1 {
		return "one stream"
	}
	return fmt.Sprintf("%d streams", w.Streams)
}
