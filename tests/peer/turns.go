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

// Turns of decoding: how many the two that are compared have, in the first and the last of
// how many of them the other sides have one, and how long one is meant to take.
const (
	turnRounds = 6
	turnOthers = 3
	turnTime   = 2500 * time.Millisecond
)

// resident is a program that holds a model and runs once for each line that it gets.
type resident struct {
	side string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	err  bytes.Buffer
	args []string
}

// reside starts it; its first turn ends when it is loaded and warm.
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

// turn runs it once.
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
		return fmt.Errorf("%s takes no turn: %w: %s", r.side, errors.Join(err, r.cmd.Wait()), outcome{err: r.err.Bytes()}.reason())
	}
	return nil
}

// close lets it end.
func (r *resident) close() {
	r.in.Close()
	stop := time.AfterFunc(limit/10, func() { r.cmd.Process.Kill() })
	defer stop.Stop()
	_ = r.cmd.Wait() // what it measured is here
}

// turns measures decoding: all sides loaded, in turns of seconds, the read bandwidth
// between them, since it moves as fast as that.
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
	for _, r := range append(all, gauge) { // loaded and warm, one after the other
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

// read is the bandwidth now.
func (r *resident) read() (float64, error) {
	var v figures.Values
	err := r.turn(&v)
	if err == nil && !(v[figures.Bandwidth] > 0) {
		err = fmt.Errorf("limits: a turn printed no bandwidth")
	}
	return v[figures.Bandwidth], err
}

// turnTokens is how many tokens take a turn's time at most at a bandwidth, where each
// reads the whole file.
func turnTokens(bandwidth float64, file int64) int {
	n := bandwidth / float64(max(file, 1)) * turnTime.Seconds()
	return int(min(max(n, 8), 512))
}

// compared are the two sides that are held against each other: llama.cpp as it comes, and
// vapp in the way that is most like it.
func compared(sides []side) [2]int {
	out := [2]int{-1, -1}
	for i, s := range sides {
		switch {
		case s.name == figures.Llama:
			out[0] = i
		case s.file != "":
			out[1] = i // the last: int8 activations, where there are
		}
	}
	return out
}

// turnOrder is who runs when: A B A B, and all others in the first and the last of every turnOthers rounds.
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

// turnCommand is a side's program that waits for lines.
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
