// Package console is a chat on a terminal or in a pipe with a server of the OpenAI API: the
// conversation, its commands, the streaming client and the line editor. It must not plan, load or
// serve a model. Start reading at Console.Run in this file.
package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"
	"unicode/utf8"
)

// Input reads lines from a user or a pipe.
type Input interface {
	// Read returns a line without its end. Its errors are ErrInterrupt, with the line that was not
	// sent, and io.EOF.
	Read(prompt string) (string, error)
}

// ErrInterrupt means that Ctrl-C was pressed at the prompt.
var ErrInterrupt = errors.New("interrupt")

// Config holds the arguments of New.
type Config struct {
	Client *Client
	Model  Model
	Values map[string]any // of settings: system and fields of the API
	In     Input
	Out    io.Writer
	Err    io.Writer // for errors where Interactive is false
	// Interactive: a person reads and writes. Otherwise each line is one message.
	Interactive bool
	Terminal    bool // Out is a terminal
	Color       bool
	Stats       bool // print the speed of each reply
	// Interrupts has a value for each Ctrl-C while a reply runs.
	Interrupts <-chan struct{}
}

// Console is one chat.
type Console struct {
	cfg    Config
	chat   conversation
	unsent *Message // a message without reply, for /retry
	images []string // of /image, for the next message
	last   struct {
		usage       *Usage
		first, rest time.Duration // until the first token, and after it
	}
	asked, failed int
	leaving       bool // the last line was an interrupt
}

// New returns a chat.
func New(c Config) *Console {
	values := maps.Clone(c.Values)
	if values == nil {
		values = map[string]any{}
	}
	return &Console{cfg: c, chat: conversation{model: c.Model.ID, values: values}}
}

// Run reads and answers messages until the input ends, or /bye. Where the input is not a person's,
// its error says how many messages or commands failed.
func (c *Console) Run(ctx context.Context) error {
	if c.cfg.Interactive {
		c.print("%s at %s. /help lists the commands, \"\"\" begins a text of several lines, Ctrl-D leaves.\n", Printable(c.cfg.Model.ID), c.cfg.Client.URL())
	}
	for ctx.Err() == nil {
		text, fenced, err := c.read()
		switch {
		case errors.Is(err, ErrInterrupt):
			if text == "" && c.leaving || !c.cfg.Interactive {
				return context.Canceled
			}
			if c.leaving = text == ""; c.leaving {
				c.print("Ctrl-C again, Ctrl-D or /bye leaves.\n")
			}
			continue
		case errors.Is(err, io.EOF):
			return c.end()
		case err != nil:
			return err
		}
		c.leaving = false
		if strings.TrimSpace(text) == "" {
			continue
		}
		bye, err := c.take(ctx, text, fenced)
		if err != nil && !c.report(err) {
			return err
		}
		if bye {
			return c.end()
		}
	}
	return ctx.Err()
}

// end returns the error of messages that failed, in a pipe.
func (c *Console) end() error {
	if c.failed > 0 && !c.cfg.Interactive {
		return fmt.Errorf("%d of %d lines failed", c.failed, c.asked)
	}
	return nil
}

// report prints an error of a message or command. It returns false for an error that ends the chat.
func (c *Console) report(err error) bool {
	if errors.Is(err, context.Canceled) && !c.cfg.Interactive {
		return false
	}
	c.failed++
	if c.cfg.Interactive {
		c.print("%s\n", Printable(err.Error()))
		return true
	}
	fmt.Fprintf(c.cfg.Err, "vapp: line %d: %v\n", c.asked, err)
	return true
}

func (c *Console) print(format string, args ...any) { fmt.Fprintf(c.cfg.Out, format, args...) }

// maxMessage bounds a message in bytes.
const maxMessage = 16 << 20

// fence begins and ends a text of several lines.
const fence = `"""`

// read returns the next message or command: a line, or the text between two fences.
func (c *Console) read() (text string, fenced bool, err error) {
	prompt := func(p string) string {
		if c.cfg.Interactive {
			return p
		}
		return ""
	}
	line, err := c.cfg.In.Read(prompt(">>> "))
	rest, fenced := strings.CutPrefix(strings.TrimLeft(line, " \t"), fence)
	if err != nil || !fenced {
		return line, false, err
	}
	var b strings.Builder
	for {
		inside, _, closed := strings.Cut(rest, fence)
		b.WriteString(inside)
		if closed {
			return b.String(), true, nil
		}
		if b.Len() > maxMessage {
			return "", true, fmt.Errorf("a message of more than %d bytes", maxMessage)
		}
		if inside != "" || b.Len() > 0 {
			b.WriteByte('\n')
		}
		if rest, err = c.cfg.In.Read(prompt("... ")); err != nil {
			if errors.Is(err, io.EOF) && b.Len() > 0 { // the end closes the text
				return b.String(), true, nil
			}
			return strings.TrimSpace(b.String() + rest), true, err
		}
	}
}

// take handles a message or a command. A text between fences is a message.
func (c *Console) take(ctx context.Context, text string, fenced bool) (bye bool, err error) {
	c.asked++
	if !utf8.ValidString(text) {
		return false, errors.New("the message is not UTF-8; it was not sent")
	}
	if !fenced && strings.HasPrefix(text, "/") && !strings.Contains(text, "\n") {
		return c.command(ctx, text)
	}
	return false, c.ask(ctx, Message{Role: "user", Content: text, Images: c.images})
}

// ask sends a message and prints the reply.
func (c *Console) ask(ctx context.Context, m Message) error {
	before := len(c.chat.messages)
	c.chat.messages = append(c.chat.messages, m)
	c.unsent, c.images = &m, nil
	reply, err := c.reply(ctx)
	if reply == "" && err != nil {
		c.chat.messages = c.chat.messages[:before]
		if err == errStopped {
			return nil
		}
		if c.cfg.Interactive && !errors.Is(err, context.Canceled) {
			err = fmt.Errorf("%w\nThe message is kept: /retry sends it again.", err)
		}
		return err
	}
	c.chat.messages = append(c.chat.messages, Message{Role: "assistant", Content: reply})
	c.unsent = nil
	if err != nil && c.cfg.Interactive {
		err = fmt.Errorf("%w\nThe part of the reply is kept; /retry asks again.", err)
	}
	return err
}

// errStopped ends a reply that Ctrl-C interrupts.
var errStopped = errors.New("stopped")

// reply asks for the next reply, prints it and returns its text.
func (c *Console) reply(ctx context.Context) (string, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := make(chan struct{})
	defer close(ended)
	c.drop()
	go func() {
		select {
		case <-c.cfg.Interrupts:
			stop(errStopped)
		case <-ended:
		}
	}()
	out := Screen{W: c.cfg.Out, Terminal: c.cfg.Terminal, Color: c.cfg.Color, Reasoning: c.chat.values["reasoning"] != false}
	var text strings.Builder
	begin := time.Now()
	var first, last time.Time
	reply, err := c.cfg.Client.Complete(ctx, c.chat.request(), func(p Piece) error {
		if last = time.Now(); first.IsZero() {
			first = last
		}
		text.WriteString(p.Text)
		return out.Say(p)
	})
	err = errors.Join(err, out.End())
	if !first.IsZero() {
		c.last.usage, c.last.first, c.last.rest = reply.Usage, first.Sub(begin), last.Sub(first)
	}
	switch {
	case errors.Is(context.Cause(ctx), errStopped):
		c.print("(stopped)\n")
		if !c.cfg.Interactive {
			return text.String(), context.Canceled
		}
		if text.Len() == 0 {
			return "", errStopped
		}
		return text.String(), nil
	case err != nil:
		return text.String(), err
	}
	if c.cfg.Interactive {
		c.notes(reply)
	}
	return text.String(), nil
}

// drop removes interrupts from before the reply.
func (c *Console) drop() {
	for {
		select {
		case <-c.cfg.Interrupts:
		default:
			return
		}
	}
}

// notes prints why a reply ended early, and its speed.
func (c *Console) notes(r Reply) {
	if r.Finish == "length" {
		c.print("(cut off: the reply reached max_tokens or the length of the model)\n")
	}
	if c.cfg.Stats && r.Usage != nil {
		dim := Screen{Color: c.cfg.Color}
		c.print("%s%s%s\n", dim.code("\x1b[2m"), c.speed(), dim.code("\x1b[0m"))
	}
}

// speed describes the last reply.
func (c *Console) speed() string {
	u := c.last.usage
	if u == nil {
		return "the server reported no tokens for the last reply"
	}
	rate := ""
	if c.last.rest > 0 && u.Completion > 1 {
		rate = fmt.Sprintf(", %.1f tokens/s", float64(u.Completion-1)/c.last.rest.Seconds())
	}
	return fmt.Sprintf("prompt %d tokens, first token after %s; generated %d tokens%s", u.Prompt, c.last.first.Round(time.Millisecond), u.Completion, rate)
}
