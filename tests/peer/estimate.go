package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"vapp.dev/tests/peer/figures"
)

// estimate holds the expected time of each part.
type estimate map[string]time.Duration

// usual holds the times with one round on two cores with a read bandwidth of 40 GB/s.
var usual = estimate{
	"llama1b-bf16": 350 * time.Second, "llama1b-q8_0": 240 * time.Second, "llama1b-q4_0": 220 * time.Second,
	"llama1b-q4_k_m": 240 * time.Second, "smollm2-bf16": 80 * time.Second, "smollm2-q4_1": 70 * time.Second,
	figures.Streams: 60 * time.Second,
}

// estimate returns the expected times: per round as in the last measurement, else usual.
func (b bench) estimate(parts []string) (estimate, error) {
	last, err := figures.Load(filepath.Join(b.dir, "results"), parts)
	if err != nil {
		return nil, err
	}
	out := estimate{}
	for _, name := range parts {
		seconds, rounds := usual[name].Seconds(), 1
		if p := last[name]; p.Took > 0 && p.Rounds > 0 {
			seconds, rounds = p.Took, p.Rounds
		}
		if name != figures.Streams {
			seconds *= float64(b.rounds) / float64(rounds)
		}
		out[name] = time.Duration(seconds * float64(time.Second))
	}
	return out, nil
}

// print writes the expected times.
func (e estimate) print(w io.Writer, parts []string) {
	var all time.Duration
	var words []string
	for _, name := range parts {
		all += e[name]
		words = append(words, fmt.Sprintf("%s %.0f s", name, e[name].Seconds()))
	}
	if len(parts) > 0 {
		fmt.Fprintf(w, "bench-peer: about %.0f minutes: %s\n", all.Minutes()+0.5, strings.Join(words, ", "))
	}
}
