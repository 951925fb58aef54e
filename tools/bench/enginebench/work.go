package main

import (
	"fmt"
	"regexp"
	"strconv"
)

// benchWork is what a row of bench engine runs: equal requests at once, each of
// prompt tokens that are read and output tokens that are generated.
type benchWork struct {
	Streams int `json:"streams"`
	Prompt  int `json:"prompt"`
	Output  int `json:"output"`
}

var workForm = regexp.MustCompile(`^(?:(\d+)x)?(\d+)\+(\d+)$`)

// Bounds of a row: beyond them the sums of tokens mean nothing to a machine of today.
const maxWork, maxWorkStreams = 1 << 24, 1 << 14

// parseWork reads STREAMSxPROMPT+OUTPUT, or PROMPT+OUTPUT for one stream.
func parseWork(s string) (benchWork, error) {
	m := workForm.FindStringSubmatch(s)
	if m == nil {
		return benchWork{}, fmt.Errorf(`bench: --work %q: want PROMPT+OUTPUT or STREAMSxPROMPT+OUTPUT, as "16x128+64"`, s)
	}
	if m[1] == "" {
		m[1] = "1"
	}
	var n [3]int
	for i, limit := range []int{maxWorkStreams, maxWork, maxWork} {
		var err error
		if n[i], err = strconv.Atoi(m[i+1]); err != nil || n[i] < 1 || n[i] > limit {
			return benchWork{}, fmt.Errorf("bench: --work %q: %s is not within 1 and %d", s, m[i+1], limit)
		}
	}
	return benchWork{n[0], n[1], n[2]}, nil
}

// rows are what is measured: --work, else one stream and several of the same length.
func (o benchOptions) rows() ([]benchWork, error) {
	if len(o.work) == 0 {
		return []benchWork{{1, o.prompt, o.output}, {o.streams, o.prompt, o.output}}, nil
	}
	var out []benchWork
	for _, s := range o.work {
		w, err := parseWork(s)
		if err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	return out, nil
}

// benchBlock is how many tokens a page has.
const benchBlock = 16

// workRoom is what the rows need at most: tokens of a sequence, in whole blocks, and
// sequences at once; and of all rows the most tokens that are held at once.
func workRoom(rows []benchWork) (length, streams, tokens int) {
	for _, w := range rows {
		n := (w.Prompt + w.Output + benchBlock - 1) / benchBlock * benchBlock
		length, streams, tokens = max(length, n), max(streams, w.Streams), max(tokens, n*w.Streams)
	}
	return length, streams, tokens
}

// who names the streams of a row.
func (w benchWork) who() string {
	if w.Streams == 1 {
		return "one stream"
	}
	return fmt.Sprintf("%d streams", w.Streams)
}
