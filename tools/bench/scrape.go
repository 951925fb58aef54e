package bench

import (
	"bufio"
	"bytes"
	"context"
	"strconv"
	"strings"
	"time"

	"vapp.dev/tools/bench/report"
)

// prefix is the prefix of the counters of speculative decoding.
const prefix = "vllm:spec_decode_num_"

// scraping is the timeout of a request for /metrics.
const scraping = 5 * time.Second

// speculation reads the counters from /metrics; nil where the server has none.
func (s *Server) speculation(ctx context.Context) *report.Speculation {
	ctx, cancel := context.WithTimeout(ctx, scraping)
	defer cancel()
	text, err := s.ask(ctx, "/metrics", nil)
	if err != nil {
		return nil // most servers have no such route
	}
	return counters(text)
}

// counters parses the Prometheus text format. Series of several engines are summed.
func counters(text []byte) *report.Speculation {
	out, some := report.Speculation{}, false
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), prefix)
		if !ok {
			continue
		}
		name, labels, value := sample(rest)
		switch name {
		case "drafts_total", "drafts":
			out.Drafts += value
		case "draft_tokens_total", "draft_tokens":
			out.DraftTokens += value
		case "accepted_tokens_total", "accepted_tokens":
			out.Accepted += value
		case "accepted_tokens_per_pos_total", "accepted_tokens_per_pos":
			out.Positions = at(out.Positions, labels, value)
		default:
			continue
		}
		some = true
	}
	if !some {
		return nil
	}
	return &out
}

// sample splits a line without its prefix. An invalid value is 0.
func sample(line string) (name, labels string, value float64) {
	end := strings.LastIndexByte(line, '}')
	if start := strings.IndexByte(line, '{'); start >= 0 && end > start {
		name, labels, line = line[:start], line[start+1:end], line[end+1:]
	} else {
		name, line, _ = strings.Cut(line, " ")
	}
	if words := strings.Fields(line); len(words) > 0 {
		if x, err := strconv.ParseFloat(words[0], 64); err == nil && x >= 0 && x < 1e18 {
			value = x
		}
	}
	return name, labels, value
}

// maxPositions bounds the tokens of a draft.
const maxPositions = 1024

// at adds value to the position that the labels name.
func at(positions []float64, labels string, value float64) []float64 {
	_, rest, _ := strings.Cut(labels, `position="`)
	digits, _, _ := strings.Cut(rest, `"`)
	i, err := strconv.Atoi(digits)
	if err != nil || i < 0 || i >= maxPositions {
		return positions
	}
	for len(positions) <= i {
		positions = append(positions, 0)
	}
	positions[i] += value
	return positions
}

// increase returns the increase of the counters; nil where one side has none or a counter decreased.
func increase(before, after *report.Speculation) *report.Speculation {
	if before == nil || after == nil || after.Drafts < before.Drafts {
		return nil
	}
	out := report.Speculation{
		Drafts: after.Drafts - before.Drafts, DraftTokens: after.DraftTokens - before.DraftTokens,
		Accepted: after.Accepted - before.Accepted,
	}
	for i, n := range after.Positions {
		if i < len(before.Positions) {
			n -= before.Positions[i]
		}
		out.Positions = append(out.Positions, n)
	}
	return &out
}
