package enginebench

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
)

// turn is the result of one turn, a line of JSON.
type turn struct {
	Prefill  float64 `json:"prefill"`          // tokens a second
	Decode   float64 `json:"decode,omitempty"` // tokens a second
	StepRead float64 `json:"step_bytes"`       // bytes that a decode step reads, halfway through the output
}

// turns runs the last row once for each line of in, and writes the result as a line of JSON to
// out. The program that writes the lines can so alternate between two loaded engines every few
// seconds. turns returns at the end of in.
func (s session) turns(ctx context.Context, in io.Reader, out io.Writer) error {
	rows, err := s.rows()
	if err != nil {
		return err
	}
	w := rows[len(rows)-1]
	cost := costOf(s.p.Plan.Account.Reservation, w.Prompt+w.Output/2)
	lines, to := bufio.NewScanner(in), json.NewEncoder(out)
	for n := int32(0); lines.Scan(); n++ {
		start, tokens, err := w.once(ctx, s.eng, int32(s.p.Model.Family.Vocab()), n) // another seed: no turn hits the prefix cache of another
		if err != nil {
			return err
		}
		row := Row{Work: w}
		row.add(start, tokens)
		turn := turn{Prefill: row.Prefill[0], StepRead: cost.step(w.Streams)}
		if len(row.Decode) > 0 {
			turn.Decode = row.Decode[0]
		}
		if err := to.Encode(turn); err != nil {
			return err
		}
	}
	return lines.Err()
}
