package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// pseudoTerminal opens a pseudo-terminal with this many columns. What is written to f can be read
// from shown.
func pseudoTerminal(t *testing.T, columns uint16) (shown, f *os.File) {
	t.Helper()
	shown, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("not run: %v", err)
	}
	t.Cleanup(func() { shown.Close() })
	if err := unix.IoctlSetPointerInt(int(shown.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(shown.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if f, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Skipf("not run: %v", err)
	}
	t.Cleanup(func() { f.Close() })
	if err := unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	return shown, f
}

// TestDrawable checks that bars are drawn on terminals with a width, and lines are printed
// elsewhere.
func TestDrawable(t *testing.T) {
	if _, f := pseudoTerminal(t, 80); !drawable(f) {
		t.Error("no bar on a terminal of 80 columns")
	}
	shown, f := pseudoTerminal(t, 0)
	if drawable(f) {
		t.Fatal("a bar on a terminal without a width")
	}
	show, end := countProgress(f, "Requests")
	show(1, 2)
	end()
	b := make([]byte, 100)
	if n, err := shown.Read(b); err != nil || string(b[:n]) != "Requests:  50% (1 of 2)\r\n" {
		t.Errorf("%q, %v", b[:n], err)
	}
	if r, w, err := os.Pipe(); err != nil || drawable(w) {
		t.Errorf("a bar in a pipe, %v", err)
	} else {
		r.Close()
		w.Close()
	}
}

// TestHelpWidth checks that the flags of help fit the terminal, and have a fixed width elsewhere.
func TestHelpWidth(t *testing.T) {
	widest := func(out *os.File) (columns int) {
		defer func(was *os.File) { os.Stdout = was }(os.Stdout)
		os.Stdout = out
		up, _, err := newRoot().Find([]string{"up"})
		if err != nil {
			t.Fatal(err)
		}
		_, flags, _ := strings.Cut(up.UsageString(), "\nFlags:\n")
		for line := range strings.Lines(flags) {
			columns = max(columns, utf8.RuneCountInString(strings.TrimRight(line, "\n")))
		}
		return columns
	}
	if _, f := pseudoTerminal(t, 80); widest(f) > 80 || widest(f) < 60 {
		t.Errorf("%d columns on a terminal of 80", widest(f))
	}
	if r, w, err := os.Pipe(); err != nil || widest(w) > helpWidth || widest(w) <= 80 {
		t.Errorf("%d columns in a pipe, %v", widest(w), err)
	} else {
		r.Close()
		w.Close()
	}
}
