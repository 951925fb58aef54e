package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"vapp.dev/appliance"
	"vapp.dev/appliance/plan"
	"vapp.dev/appliance/plan/picture"
)

// answer is what a flag asks beyond the plan: its title, its text and its JSON form.
type answer struct {
	title string
	text  string
	json  func(io.Writer) error
}

// check refuses flags that ask for several answers at once.
func (f planFlags) check(c *cobra.Command) error {
	asked := 0
	for _, s := range []string{f.whyNot, f.explain, f.compat} {
		if s != "" {
			asked++
		}
	}
	switch {
	case f.speed && asked > 0:
		return &usageError{errors.New("--speed adds the predicted speed to the plan; leave out --why-not, --explain and --compat"), c.CommandPath()}
	case asked > 1:
		return &usageError{errors.New("--why-not, --explain and --compat: give one of them"), c.CommandPath()}
	case f.verbose && f.whyNot+f.explain != "":
		return &usageError{errors.New("--verbose adds the ledger to the plan; --why-not and --explain print no plan: leave it out"), c.CommandPath()}
	}
	return nil
}

// print prints the plan, or the answer to one of the flags. With --html the text goes into the page.
func (f planFlags) print(c *cobra.Command, p *appliance.Prepared) error {
	var a *answer
	switch {
	case f.explain != "":
		e, err := p.Plan.Explain(f.explain)
		if err != nil {
			return &usageError{fmt.Errorf("--explain: %w", err), c.CommandPath()}
		}
		a = &answer{"How " + f.explain + " was computed", e.String(), e.JSON}
	case f.compat != "":
		var err error
		if a, err = compatAnswer(c, p, f.compat); err != nil {
			return err
		}
	}
	if f.html != "" {
		if err := writePage(f.html, p.Plan, a); err != nil || !f.json {
			return err
		}
	}
	w := c.OutOrStdout()
	switch {
	case f.json && a != nil:
		return a.json(w)
	case f.json:
		return p.Plan.JSON(w)
	case f.explain != "":
		_, err := io.WriteString(w, a.text)
		return err
	}
	if err := f.text(w, p.Plan); err != nil || a == nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n%s", a.title, a.text)
	return err
}

// printJoint prints the plan of several models.
func (f planFlags) printJoint(c *cobra.Command, j *plan.Joint) error {
	w := c.OutOrStdout()
	if f.json {
		return j.JSON(w)
	}
	form := plan.Form{Verbose: f.verbose}
	if width, _, ok := terminal(w); ok {
		form.Width = width
	}
	if err := j.TextAs(w, form); err != nil || f.verbose {
		return err
	}
	_, err := io.WriteString(w, "\nmore: -v every byte · vapp plan PROFILE for one of them\n")
	return err
}

// more is the last line of the short text.
const more = "\nmore: -v every byte and decision · --explain kv · --why-not 16x32K · --html FILE\n"

// text prints the plan as text, on a terminal with its picture.
func (f planFlags) text(w io.Writer, p *plan.Plan) error {
	form := plan.Form{Verbose: f.verbose}
	if width, colour, ok := terminal(w); ok {
		form.Width, form.Picture = width, picture.Terminal(p, width, colour)
	}
	if err := p.TextAs(w, form); err != nil || f.verbose || f.compat != "" {
		return err
	}
	_, err := io.WriteString(w, more)
	return err
}

// refused returns the error of a plan that cannot be made. If the plan does not fit, --json prints its
// verdict and -v adds the ledger to the error's text.
func (f planFlags) refused(c *cobra.Command, err error) error {
	var short *plan.DoesNotFitError
	var contract *plan.ContractError
	var late *plan.LatencyError
	var joint *plan.JointError
	write := func(io.Writer) error { return nil }
	switch {
	case errors.As(err, &short):
		short.Verbose, write = f.verbose, short.JSON
	case errors.As(err, &contract):
		contract.Verbose, write = f.verbose, contract.JSON
	case errors.As(err, &late):
		write = late.JSON
	case errors.As(err, &joint):
		write = joint.JSON
	}
	if f.html != "" {
		fmt.Fprintf(c.ErrOrStderr(), "vapp: --html: no page was written, because the plan is refused\n")
	}
	if f.json {
		return errors.Join(err, write(c.OutOrStdout()))
	}
	return err
}

// writePage writes the plan as a page, with the answer as a section.
func writePage(path string, p *plan.Plan, a *answer) error {
	var sections []picture.Section
	if a != nil {
		sections = append(sections, picture.Section{Title: strings.ToUpper(a.title[:1]) + a.title[1:], Text: a.text})
	}
	if p.Speed != nil {
		sections = append(sections, picture.Section{Title: "Predicted speed", Text: p.Speed.String()})
	}
	var page bytes.Buffer
	if err := picture.HTML(&page, p, sections...); err != nil {
		return err
	}
	if err := os.WriteFile(path, page.Bytes(), 0o644); err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	return nil
}

// terminal returns the width of a terminal and whether colors may be used; ok is false where w is
// no terminal.
func terminal(w io.Writer) (width int, colour, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, false, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		width = 80
	}
	return width, os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb", true
}

// whyNot prints the answer to --why-not, or writes it with the plan to a page.
func whyNot(c *cobra.Command, profile string, m appliance.Machine, show planFlags) error {
	goal, err := plan.ParseGoal(show.whyNot)
	if err != nil {
		return &usageError{fmt.Errorf("--why-not: %w", err), c.CommandPath()}
	}
	a, err := appliance.WhyNot(profile, m, goal)
	if err != nil {
		return err
	}
	if show.html != "" {
		p, failed := appliance.Prepare(profile, m)
		if failed == nil {
			failed = errors.Join(writePage(show.html, p.Plan, &answer{title: "Would " + show.whyNot + " fit?", text: a.String()}), p.Close())
			if failed == nil && !show.json {
				return nil
			}
		}
		err = failed // a profile that does not fit has an answer, and no page
	}
	if show.json {
		return errors.Join(err, a.JSON(c.OutOrStdout()))
	}
	_, printed := io.WriteString(c.OutOrStdout(), a.String())
	return errors.Join(err, printed)
}
