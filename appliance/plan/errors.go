package plan

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"vapp.dev/schema"
)

// DoesNotFitError says that memory is too small for one sequence of the model
// length. %v is one line with the smallest change that fits; %+v adds the ledger
// and every single change that fits.
type DoesNotFitError struct {
	Pos     schema.Position
	What    string // "memory", or "memory.kvCache" where the profile fixed too little
	Need    int64  // bytes that one sequence of Tokens takes with everything else
	Have    int64
	Missing int64
	Tokens  int // the model length; the least there can be where it is auto
	Rule    string
	Ledger  Ledger   // as it would be
	Changes []Change // the smallest first
}

// Error is one line.
func (e *DoesNotFitError) Error() string {
	return fmt.Sprintf("%v: %s: does not fit: %s missing: one sequence of %s tokens needs %s, there is %s (%s); %s",
		e.Pos, e.What, Size(e.Missing), Group(int64(e.Tokens)), Size(e.Need), Size(e.Have), e.Rule, e.remedy())
}

func (e *DoesNotFitError) remedy() string {
	if len(e.Changes) == 0 {
		return "no single change of the profile makes it fit: take a smaller model or a machine with more memory"
	}
	return "the smallest change that fits is " + e.Changes[0].String()
}

// Format adds the ledger and the changes for %+v.
func (e *DoesNotFitError) Format(f fmt.State, verb rune) {
	io.WriteString(f, e.Error())
	if verb != 'v' || !f.Flag('+') {
		return
	}
	fmt.Fprintf(f, "\n\nwhat it would hold, bytes:\n")
	t := &text{width: TextWidth}
	e.Ledger.table(t)
	io.WriteString(f, t.b.String())
	fmt.Fprintf(f, "  there is %s bytes (%s), %s missing\n", Group(e.Have), e.Rule, Group(e.Missing))
	if len(e.Changes) == 0 {
		return
	}
	fmt.Fprintf(f, "\nany one of these changes makes it fit:\n")
	for _, c := range e.Changes {
		fmt.Fprintf(f, "  %v\n", c)
	}
}

// explain turns a shortage into the error with its remedies.
func (w want) explain(err error) error {
	var s *shortError
	if !errors.As(err, &s) {
		return err
	}
	e := &DoesNotFitError{
		Pos: w.in.Profile.Pos("memory"), What: "memory", Need: s.need, Have: s.have, Missing: s.need - s.have,
		Tokens: s.tokens, Rule: w.budget().Rule, Ledger: s.ledger,
	}
	if s.kvOnly {
		e.Pos, e.What, e.Rule = w.in.Profile.Pos("memory.kvCache"), "memory.kvCache", "as fixed by the profile"
	}
	for _, knob := range knobs {
		e.Changes = append(e.Changes, knob(w, s)...)
	}
	slices.SortStableFunc(e.Changes, func(a, b Change) int { return cmp.Compare(a.far, b.far) })
	return e
}
