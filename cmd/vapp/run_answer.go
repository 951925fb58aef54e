package main

import (
	"context"
	"errors"
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
	out := speaker{w: s.out, terminal: s.terminal, plain: os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb"}
	for {
		deltas, err := run.Next(ctx)
		if err != nil || deltas == nil {
			err = errors.Join(err, out.end())
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
			if err := out.say(d); err != nil {
				return err
			}
		}
	}
}

// speaker writes a reply. On a terminal it writes the reasoning first, dimmed; elsewhere it omits
// it.
type speaker struct {
	w        io.Writer
	terminal bool
	plain    bool // without escape sequences
	thinks   bool // the last text written is reasoning
	open     bool // the last text written does not end its line
}

func (s *speaker) say(d chat.Delta) error {
	if d.Reasoning != "" && s.terminal {
		lead := ""
		if !s.thinks {
			s.thinks, lead = true, s.code("\x1b[2m")
		}
		if err := s.write(lead, printable(d.Reasoning)); err != nil {
			return err
		}
	}
	if d.Text == "" {
		return nil
	}
	if !s.terminal {
		return s.write("", d.Text)
	}
	return s.write(s.answers(), printable(d.Text))
}

// answers returns the text that ends the reasoning.
func (s *speaker) answers() string {
	if !s.thinks {
		return ""
	}
	s.thinks = false
	lead := s.code("\x1b[0m")
	if s.open {
		lead += "\n"
	}
	return lead
}

func (s *speaker) code(text string) string {
	if s.plain {
		return ""
	}
	return text
}

func (s *speaker) write(lead, text string) error {
	s.open = !strings.HasSuffix(text, "\n")
	_, err := io.WriteString(s.w, lead+text)
	return err
}

// end ends the current line.
func (s *speaker) end() error {
	lead := s.answers()
	if s.open && !strings.HasSuffix(lead, "\n") {
		lead += "\n"
	}
	if lead == "" {
		return nil
	}
	_, err := io.WriteString(s.w, lead)
	return err
}

// speeds prints the speed of one reply: prompt tokens until the first generated token, and
// generated tokens after it.
func speeds(w io.Writer, u chat.Usage, prompt, rest time.Duration) {
	fmt.Fprintf(w, "prompt %d tokens, %s; generated %d tokens, %s\n", u.Prompt, rate(u.Prompt, prompt), u.Completion, rate(u.Completion-1, rest))
}

// printable makes model text safe for a terminal: control characters except tab and line feed
// become the replacement character.
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
