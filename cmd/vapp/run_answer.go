package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"vapp.dev/appliance/batch"
	"vapp.dev/appliance/chat"
	"vapp.dev/tools/console"
)

// session answers the prompts of one run.
type session struct {
	runner   batch.Runner
	out      io.Writer
	err      *os.File
	terminal bool // out is a terminal
}

// one answers a prompt as streamed text.
func (s session) one(ctx context.Context, it batch.Item) error {
	begun := time.Now()
	run, err := s.runner.Start(ctx, it)
	if err != nil {
		return err
	}
	defer run.Close()
	var first, last time.Time
	out := console.Screen{W: s.out, Terminal: s.terminal, Color: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb", Reasoning: true}
	for {
		deltas, err := run.Next(ctx)
		if err != nil || deltas == nil {
			err = errors.Join(err, out.End())
			if !first.IsZero() {
				speeds(s.err, run.Usage(), first.Sub(begun), last.Sub(first))
			}
			if ctx.Err() != nil {
				return context.Canceled
			}
			return err
		}
		for _, d := range deltas {
			if len(d.Tokens) > 0 {
				if last = time.Now(); first.IsZero() {
					first = last
				}
			}
			if err := out.Say(console.Piece{Reasoning: d.Reasoning, Text: d.Text}); err != nil {
				return err
			}
		}
	}
}

// speeds prints the speed of one reply: prompt tokens until the first generated token, and
// generated tokens after it.
func speeds(w io.Writer, u chat.Usage, prompt, rest time.Duration) {
	fmt.Fprintf(w, "prompt %d tokens, %s; generated %d tokens, %s\n", u.Prompt, rate(u.Prompt, prompt), u.Completion, rate(u.Completion-1, rest))
}

// many answers prompts as JSON Lines.
func (s session) many(ctx context.Context, items []batch.Item) error {
	begun := time.Now()
	show := func(answered) {}
	if !s.terminal { // on a terminal the results themselves show the progress
		show = answerProgress(s.err, len(items))
	}
	var sum answered
	err := s.runner.All(ctx, items, func(r batch.Result) error {
		if _, err := s.out.Write(r.Lines(r.At)); err != nil {
			return err
		}
		sum.add(r)
		sum.elapsed = time.Since(begun)
		show(sum)
		return nil
	})
	if err != nil {
		show(answered{ended: true})
	}
	fmt.Fprintf(s.err, "answered %d of %d prompts in %s: prompts %d tokens, %s; generated %d tokens, %s\n",
		sum.whole, len(items), time.Since(begun).Round(10*time.Millisecond),
		sum.usage.Prompt, rate(sum.usage.Prompt, sum.elapsed), sum.usage.Completion, rate(sum.usage.Completion, sum.elapsed))
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Canceled
	case err != nil:
		return err
	case sum.failed > 0:
		return fmt.Errorf("%d of %d prompts failed; their results say why", sum.failed, len(items))
	}
	return nil
}

// answered counts the finished prompts of a run.
type answered struct {
	whole, failed int // numbers of prompts
	usage         chat.Usage
	elapsed       time.Duration
	ended         bool // interrupted
}

func (a *answered) add(r batch.Result) {
	switch {
	case r.Err == nil:
		a.whole++
	case !r.Interrupted():
		a.failed++
	}
	a.usage.Prompt += r.Usage.Prompt
	a.usage.Completion += r.Usage.Completion
}
