package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"vapp.dev/tests/peer/figures"
)

// guess is how long each part will take.
type guess map[string]time.Duration

// usual is what a part with one round takes on two cores that read 40 GB/s.
var usual = guess{
	"llama1b-bf16": 350 * time.Second, "llama1b-q8_0": 240 * time.Second, "llama1b-q4_0": 220 * time.Second,
	"llama1b-q4_k_m": 240 * time.Second, "smollm2-bf16": 80 * time.Second, "smollm2-q4_1": 70 * time.Second,
	figures.Streams: 60 * time.Second,
}

// guess takes what a part took the last time it was measured, for each round.
func (b bench) guess(parts []string) (guess, error) {
	last, err := figures.Load(filepath.Join(b.dir, "results"), parts)
	if err != nil {
		return nil, err
	}
	out := guess{}
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

// tell says how long it will take, before the wait.
func (g guess) tell(w io.Writer, parts []string) {
	var all time.Duration
	var words []string
	for _, name := range parts {
		all += g[name]
		words = append(words, fmt.Sprintf("%s %.0f s", name, g[name].Seconds()))
	}
	if len(parts) > 0 {
		fmt.Fprintf(w, "bench-peer: about %.0f minutes: %s\n", all.Minutes()+0.5, strings.Join(words, ", "))
	}
}
