package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"vapp.dev/tests/peer/figures"
)

// Turns of decoding: the number of rounds of the two compared sides, the number of rounds of
// which the other sides run in the first and the last, and the intended time of a turn.
const (
	turnRounds = 6
	turnOthers = 3
	turnTime   = 2500 * time.Millisecond
)

// resident is a program that keeps a model loaded and runs once per input line.
type resident struct {
	side string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	err  bytes.Buffer
	args []string
}

// reside starts the program; its first turn ends when the model is loaded and warm.
func reside(ctx context.Context, side string, c command) (*resident, error) {
	r := &resident{side: side, cmd: exec.CommandContext(ctx, c.path, c.args...), args: append(append([]string{}, c.env...), append([]string{c.path}, c.args...)...)}
	r.cmd.Env, r.cmd.Stderr = append(os.Environ(), c.env...), &r.err
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.out = bufio.NewReader(out)
	return r, r.cmd.Start()
}

// turn runs the program once and parses its output line into v.
func (r *resident) turn(v any) error {
	_, err := io.WriteString(r.in, "\n")
	var line []byte
	if err == nil {
		line, err = r.out.ReadBytes('\n')
	}
	if err == nil {
		err = json.Unmarshal(line, v)
	}
	if err != nil {
		r.in.Close()
		return fmt.Errorf("%s failed a turn: %w: %s", r.side, errors.Join(err, r.cmd.Wait()), outcome{err: r.err.Bytes()}.reason())
	}
	return nil
}

// close ends the program.
func (r *resident) close() {
	r.in.Close()
	stop := time.AfterFunc(limit/10, func() { r.cmd.Process.Kill() })
	defer stop.Stop()
	_ = r.cmd.Wait() // its measurements were read before
}

// turns measures decoding. All sides are loaded and take turns of a few seconds. The read
// bandwidth is measured between turns, because it can change within seconds.
func (b bench) turns(ctx context.Context, p *figures.Part, sides []side) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	info, err := os.Stat(b.model(p.Name))
	if err != nil {
		return err
	}
	tokens := turnTokens(p.Stat(figures.Machine, figures.Bandwidth).Median, info.Size())
	gauge, err := reside(ctx, figures.Machine, command{path: filepath.Join(b.dir, "limits"), args: []string{"turns"}})
	if err != nil {
		return err
	}
	defer gauge.close()
	var all []*resident
	for _, s := range sides {
		r, err := reside(ctx, s.name, b.turnCommand(p.Name, s, tokens))
		if err != nil {
			return err
		}
		defer r.close()
		all = append(all, r)
	}
	var v figures.Turn
	for _, r := range append(all, gauge) { // load and warm up, one after the other
		if err := r.turn(&v); err != nil {
			return err
		}
	}
	before, err := gauge.read()
	for _, i := range turnOrder(len(sides), compared(sides)) {
		t := figures.Turn{}
		if err == nil {
			err = all[i].turn(&t)
		}
		after := before
		if err == nil {
			after, err = gauge.read()
		}
		if err != nil {
			return err
		}
		p.Turns = append(p.Turns, figures.Turn{Side: all[i].side, Decode: t.Decode, StepBytes: t.StepBytes, Before: before, After: after})
		before = after
	}
	for _, r := range all {
		run := b.result(r.side, outcome{command: r.args}, nil)
		run.Turns = true
		p.Runs = append(p.Runs, run)
	}
	return nil
}

// read returns the current bandwidth.
func (r *resident) read() (float64, error) {
	var v figures.Values
	err := r.turn(&v)
	if err == nil && !(v[figures.Bandwidth] > 0) {
		err = fmt.Errorf("limits: a turn printed no bandwidth")
	}
	return v[figures.Bandwidth], err
}

// turnTokens returns how many tokens fit into the time of a turn at a bandwidth, if each
// token reads the whole file.
func turnTokens(bandwidth float64, file int64) int {
	n := bandwidth / float64(max(file, 1)) * turnTime.Seconds()
	return int(min(max(n, 8), 512))
}

// compared returns the two sides to compare: llama.cpp with its defaults, and the most
// similar side of vapp.
func compared(sides []side) [2]int {
	out := [2]int{-1, -1}
	for i, s := range sides {
		switch {
		case s.name == figures.Llama:
			out[0] = i
		case s.file != "":
			out[1] = i // the last one has int8 activations, if the part has such a side
		}
	}
	return out
}

// turnOrder returns the order of the sides: A B A B, and all others in the first and the last of every
// turnOthers rounds.
func turnOrder(sides int, pair [2]int) []int {
	var out []int
	for round := range turnRounds {
		out = append(out, pair[0], pair[1])
		if round%turnOthers != turnOthers-1 && round%turnOthers != 0 {
			continue
		}
		for i := range sides {
			if i != pair[0] && i != pair[1] {
				out = append(out, i)
			}
		}
	}
	return out
}

// turnCommand returns the resident program of a side.
func (b bench) turnCommand(part string, s side, tokens int) command {
	n := strconv.Itoa(tokens)
	if s.file != "" {
		return command{path: b.vapp, args: []string{"bench", "engine", "--turns", "--work", "1+" + n, s.file}}
	}
	c := command{path: filepath.Join(b.dir, "llama.cpp", "bin", "turns"), args: []string{b.model(part), threads(), n, "default"}}
	if s.tuned {
		c.args[3], c.env = "tuned", []string{"GLIBC_TUNABLES=glibc.malloc.hugetlb=1"}
	}
	return c
}
