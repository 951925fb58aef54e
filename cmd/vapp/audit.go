package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vapp.dev/appliance/auditlog"
	"vapp.dev/tools/console"
)

func newAudit() *cobra.Command {
	var since string
	var json bool
	c := &cobra.Command{
		Use:   "audit FILE",
		Short: "Read a server's audit log, and check that no entry is missing or changed",
		Long: `Audit reads the file of log.audit, with the renamed files FILE.1, FILE.2, …: the
starts, reloads and ends of a server. It prints a line for each entry: who caused
it, its outcome, the changes, and the profile and plan in force after it.

Each entry has a number and states what was in force before and after it. Audit
checks that every entry follows the one before, and prints each place where one
does not, or where a line is no entry, with file and line.

The exit code is 0 if the log is whole, and 1 if it is not or cannot be read.`,
		Args: needArgs(1, 1, "the file of log.audit"),
		RunE: func(c *cobra.Command, args []string) error {
			from, err := sinceTime(since, time.Now())
			if err != nil {
				return &usageError{err, c.CommandPath()}
			}
			return audit(c, args[0], from, json)
		},
	}
	c.Flags().StringVar(&since, "since", "", "print entries from a time on: an age such as 24h, or 2026-01-31T15:04:05Z")
	c.Flags().BoolVar(&json, "json", false, "print JSON")
	return c
}

// sinceTime returns the time of --since, the zero time for "".
func sinceTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("--since %q: give an age such as 24h, or a time such as 2026-01-31T15:04:05Z", text)
	}
	return t, nil
}

// audit prints the entries of a log from a time on, and checks all of them.
func audit(c *cobra.Command, path string, from time.Time, json bool) error {
	out := struct {
		Entries []auditlog.Entry `json:"entries"`
		Breaks  []auditlog.Break `json:"breaks"`
	}{[]auditlog.Entry{}, []auditlog.Break{}}
	var chain auditlog.Chain
	err := auditlog.Scan(path, func(r auditlog.Record) {
		if b := chain.Check(r); b != nil {
			out.Breaks = append(out.Breaks, *b)
		}
		if r.Err == nil && !r.Entry.At.Before(from) {
			out.Entries = append(out.Entries, r.Entry)
		}
	})
	if err != nil {
		return err
	}
	if json {
		if err := asJSON(c.OutOrStdout(), out); err != nil {
			return err
		}
	} else {
		printAudit(c.OutOrStdout(), out.Entries)
	}
	for _, b := range out.Breaks {
		fmt.Fprintln(c.ErrOrStderr(), console.Printable(b.String()))
	}
	if len(out.Breaks) > 0 {
		return exitError(1)
	}
	return nil
}

func printAudit(w io.Writer, list []auditlog.Entry) {
	var rows [][]string
	for _, e := range list {
		what := e.Changes
		if len(e.Lost) > 0 {
			what = append(what, "adapters not loaded: "+strings.Join(e.Lost, ", "))
		}
		if e.Error != "" {
			what = append([]string{e.Error}, what...)
		}
		row := []string{fmt.Sprint(e.Seq), e.At.UTC().Format(time.RFC3339), e.Event, cmp.Or(e.Trigger, "-"), cmp.Or(e.Class, "-"), e.Outcome,
			auditlog.Short(e.After.Profile), auditlog.Short(e.After.Plan), strings.ReplaceAll(strings.Join(what, "; "), "\n", " ")}
		for i := range row {
			row[i] = console.Printable(row[i])
		}
		rows = append(rows, row)
	}
	table(w, "rllllllll", []string{"SEQ", "TIME", "EVENT", "TRIGGER", "CLASS", "OUTCOME", "PROFILE", "PLAN", "WHAT"}, rows)
}
