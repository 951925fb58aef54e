package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
)

// benchTurn is a line that --turns prints.
type benchTurn struct {
	Prefill  float64 `json:"prefill"`          // tokens a second
	Decode   float64 `json:"decode,omitempty"` // tokens a second
	StepRead float64 `json:"step_bytes"`       // of a decode step, halfway
}

// turns runs the last row once for each line that comes, and prints what it measured
// as a line: another program says when, so that two engines that are both loaded can be
// measured in turns of seconds. It ends with its input.
func (b engineBench) turns(ctx context.Context, in io.Reader, out io.Writer) error {
	rows, err := b.rows()
	if err != nil {
		return err
	}
	w := rows[len(rows)-1]
	cost := costOf(b.p.Plan.Account.Reservation, w.Prompt+w.Output/2)
	lines, to := bufio.NewScanner(in), json.NewEncoder(out)
	for n := int32(0); lines.Scan(); n++ {
		start, tokens, err := w.once(ctx, b.eng, int32(b.p.Model.Family.Vocab()), n) // no turn finds another's prompt cached
		if err != nil {
			return err
		}
		row := benchRow{benchWork: w}
		row.add(start, tokens)
		turn := benchTurn{Prefill: row.Prefill[0], StepRead: cost.step(w.Streams)}
		if len(row.Decode) > 0 {
			turn.Decode = row.Decode[0]
		}
		if err := to.Encode(turn); err != nil {
			return err
		}
	}
	return lines.Err()
}
