package plan

import (
	"errors"
	"fmt"
	"io"

	"vapp.dev/schema"
)

// DoesNotFitError reports that memory is too small for one sequence of the model length, or for
// the KV cache that the profile fixes. %v gives one line with the smallest change that fits;
// %+v gives the verdict in three lines and every single change that fits.
type DoesNotFitError struct {
	Pos     schema.Position
	Path    string // memory, or memory.kvCache if the profile fixes too little
	What    string // what does not fit
	Need    int64  // bytes, everything included
	Have    int64
	Missing int64
	Rule    string   // how Have was computed
	Ledger  Ledger   // the ledger if it did fit
	Changes []Change // the smallest first
	Device  string   // name of the device
	Profile string   // name of the profile
	Verbose bool     // Format prints the ledger too
}

// Error returns one line.
func (e *DoesNotFitError) Error() string {
	return fmt.Sprintf("%v: %s: does not fit: %s missing: %s needs %s, there is %s (%s); %s",
		e.Pos, e.Path, Size(e.Missing), e.What, Size(e.Need), Size(e.Have), e.Rule, e.remedy())
}

func (e *DoesNotFitError) remedy() string {
	if len(e.Changes) == 0 {
		return "no single change of the profile makes it fit: take a smaller model or a machine with more memory"
	}
	return "the smallest change that fits is " + first(e.Changes).String()
}

// Verdict returns the three lines of a plan that does not fit.
func (e *DoesNotFitError) Verdict() Verdict {
	return Verdict{
		Left:    -e.Missing,
		Memory:  fmt.Sprintf("%s missing on %s: needs %s, there is %s (%s)", Size(e.Missing), e.Device, Size(e.Need), Size(e.Have), e.Rule),
		Carries: "nothing: " + e.What + " does not fit",
		Note:    e.remedy(),
		Rule:    "does-not-fit",
	}
}

// Format prints, for %+v, the verdict, the ledger if Verbose, and the changes.
func (e *DoesNotFitError) Format(f fmt.State, verb rune) {
	if verb != 'v' || !f.Flag('+') {
		io.WriteString(f, e.Error())
		return
	}
	t := &text{width: TextWidth}
	v := e.Verdict()
	t.wrapped(fmt.Sprintf("%v: %s: does not fit: ", e.Pos, e.Path), v.Memory)
	t.pair("carries", v.Carries)
	t.pair("note", v.Note)
	if e.Verbose {
		t.line("")
		t.line("what it would hold, bytes:")
		e.Ledger.table(t, Basis.counts)
		t.row("needs", Group(e.Need), Size(e.Need), "", e.What)
		t.row("there is", Group(e.Have), Size(e.Have), "", e.Rule)
		t.row("missing", Group(e.Missing), Size(e.Missing), "", "")
	}
	io.WriteString(f, t.b.String())
	if len(e.Changes) == 0 {
		return
	}
	fmt.Fprintf(f, "\nany one of these changes makes it fit:\n")
	io.WriteString(f, listChanges(e.Changes))
}

// explain turns a *shortError into a *DoesNotFitError with the changes that fit.
func (w resolved) explain(err error) error {
	var s *shortError
	if !errors.As(err, &s) {
		return err
	}
	e := w.doesNotFit(s)
	e.Changes = w.changes(s)
	return e
}

// doesNotFit turns a *shortError into a *DoesNotFitError without changes.
func (w resolved) doesNotFit(s *shortError) *DoesNotFitError {
	e := &DoesNotFitError{
		Pos: w.in.Profile.Pos("memory"), Path: "memory", Need: s.need, Have: s.have, Missing: s.need - s.have,
		What: fmt.Sprintf("one sequence of %s tokens with everything else", Group(int64(s.tokens))), Rule: w.budget().Rule, Ledger: s.ledger,
		Device: w.in.Facts.Device, Profile: w.in.Profile.Name,
	}
	switch {
	case s.kvOnly:
		e.Pos, e.Path = w.in.Profile.Pos("memory.kvCache"), "memory.kvCache"
		e.What, e.Rule = fmt.Sprintf("one sequence of %s tokens", Group(int64(s.tokens))), "as the profile fixes it"
	case w.kvCache > 0:
		e.What = fmt.Sprintf("a KV cache of %v with everything else", schema.Bytes(w.kvCache))
	}
	return e
}
