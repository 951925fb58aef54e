package console

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/reeflective/readline"
)

// Editor is an Input with a line editor on the terminal of standard input and output.
type Editor struct{ shell *readline.Shell }

// NewEditor returns an editor with a history.
func NewEditor(h *History) *Editor {
	s := readline.NewShell()
	s.Config.Set("cursor-position-probe", false) // a terminal that does not answer it would block
	s.Config.Set("enable-bracketed-paste", true)
	s.Completer = func(line []rune, cursor int) readline.Completions {
		return readline.CompleteValues(complete(string(line[:cursor]))...).NoSpace('/')
	}
	s.History.Delete()
	s.History.Add("chat", h)
	return &Editor{s}
}

// Read implements Input.
func (e *Editor) Read(prompt string) (string, error) {
	e.shell.Prompt.Primary(func() string { return prompt })
	line, err := e.shell.Readline()
	if errors.Is(err, readline.ErrInterrupt) {
		err = ErrInterrupt
	}
	return line, err
}

// Lines is an Input without editing: a pipe, or a terminal that has no cursor movement.
type Lines struct {
	out        io.Writer
	interrupts <-chan struct{}
	lines      chan lineRead
	ask        chan struct{}
}

type lineRead struct {
	text string
	err  error
}

// NewLines returns an Input that reads in and writes prompts to out. A value of interrupts ends a
// Read.
func NewLines(in io.Reader, out io.Writer, interrupts <-chan struct{}) *Lines {
	l := &Lines{out: out, interrupts: interrupts, lines: make(chan lineRead, 1), ask: make(chan struct{}, 1)}
	go func() {
		for r := bufio.NewReader(in); ; {
			<-l.ask // so that a line is read only when the chat wants it
			text, err := readLine(r)
			l.lines <- lineRead{text, err}
			if err != nil {
				return
			}
		}
	}()
	l.ask <- struct{}{}
	return l
}

// Read implements Input.
func (l *Lines) Read(prompt string) (string, error) {
	if _, err := io.WriteString(l.out, prompt); err != nil {
		return "", err
	}
	select {
	case got := <-l.lines:
		if got.err != nil {
			l.lines <- got // the end stays the end
		} else {
			l.ask <- struct{}{}
		}
		return got.text, got.err
	case <-l.interrupts:
		if prompt != "" {
			io.WriteString(l.out, "\n")
		}
		return "", ErrInterrupt
	}
}

// readLine returns a line of at most maxMessage bytes, without its end.
func readLine(r *bufio.Reader) (string, error) {
	var line strings.Builder
	for {
		part, err := r.ReadSlice('\n')
		line.Write(part)
		switch {
		case line.Len() > maxMessage:
			return "", fmt.Errorf("standard input has a line of more than %d bytes", maxMessage)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == io.EOF && line.Len() > 0, err == nil:
			return strings.TrimRight(line.String(), "\r\n"), nil
		}
		return "", err
	}
}
