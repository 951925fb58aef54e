package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"vapp.dev/appliance/batch"
	"vapp.dev/appliance/chat"
)

// session answers the prompts of one run.
type session struct {
	runner   batch.Runner
	out      io.Writer
	err      *os.File
	terminal bool // out is one
}

// one answers a prompt as text, while it comes.
func (s session) one(ctx context.Context, it batch.Item) error {
	begun := time.Now()
	run, err := s.runner.Start(ctx, it)
	if err != nil {
		return err
	}
	defer run.Close()
	var first, last time.Time
	ends := true // the text so far ends a line
	for {
		deltas, err := run.Next(ctx)
		if err != nil || deltas == nil {
			if !ends {
				fmt.Fprintln(s.out)
			}
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
			if d.Text == "" {
				continue
			}
			text := d.Text
			if s.terminal {
				text = printable(text)
			}
			if _, err := io.WriteString(s.out, text); err != nil {
				return err
			}
			ends = strings.HasSuffix(text, "\n")
		}
	}
}

// speeds tells the tokens of one reply: those of the prompt until the first one
// came, the others after it.
func speeds(w io.Writer, u chat.Usage, prompt, rest time.Duration) {
	fmt.Fprintf(w, "prompt %d tokens, %s; generated %d tokens, %s\n", u.Prompt, rate(u.Prompt, prompt), u.Completion, rate(u.Completion-1, rest))
}

// printable keeps what a model says from moving the cursor or worse: control
// characters but tab and line end show as the replacement character.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (r < ' ' || r >= 0x7f && r < 0xa0) {
			return '\uFFFD'
		}
		return r
	}, text)
}

// many answers prompts as JSON Lines.
func (s session) many(ctx context.Context, items []batch.Item) error {
	begun := time.Now()
	show := func(answered) {}
	if !s.terminal { // where results are read as they come, they are the progress
		show = answerProgress(s.err, len(items))
	}
	var sum answered
	index := 0
	err := s.runner.All(ctx, items, func(r batch.Result) error {
		if _, err := s.out.Write(r.Lines(index)); err != nil {
			return err
		}
		index++
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

// answered is how far a run has come.
type answered struct {
	whole, failed int // prompts
	usage         chat.Usage
	elapsed       time.Duration
	ended         bool // before its time
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
