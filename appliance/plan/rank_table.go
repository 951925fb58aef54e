package plan

import (
	"fmt"

	"vapp.dev/engine/backend"
)

// RankRow is what one rank holds.
type RankRow struct {
	Rank   int `json:"rank"`   // stage × tensor parallel size + tensor
	Tensor int `json:"tensor"` // the rank's place among those that share each layer
	Stage  int `json:"stage"`  // of the pipeline
	Layer0 int `json:"first_layer"`
	Layers int `json:"layers"`
	// Bytes: the lines of the rank's ledger. Total are those that count against the budget.
	Weights int64 `json:"weights_bytes"`
	KV      int64 `json:"kv_bytes"`
	Total   int64 `json:"total_bytes"`
	Host    int64 `json:"host_bytes"`
}

// holds returns the row without the rank's place, and without the memory of the host.
func (r RankRow) holds() RankRow {
	r.Rank, r.Tensor, r.Stage, r.Layer0 = 0, 0, 0, 0
	r.Host = 0
	return r
}

// RankRows returns a row for each rank. Ranks of a stage differ only in what its first one has, so
// that two of a stage are planned, and stages of the same layers once.
func (p *Plan) RankRows() ([]RankRow, error) {
	type kind struct {
		stage int // index of stages
		first bool
	}
	w, d := p.resolved, p.Decisions()
	b := w.in.Model.Source.Build
	tensor := max(1, b.Shard.World)
	planned := map[kind]*RankPlan{}
	var out []RankRow
	for i := range p.Ranks {
		stage := i / tensor
		k := kind{w.stageOf[stage], i%tensor == 0}
		r, ok := planned[k]
		if !ok {
			var err error
			if r, err = w.rankPlan(i, d); err != nil {
				return nil, err
			}
			planned[k] = r
		}
		first, layers, err := rankBuild(b, i).Layers(w.in.Model.Config.NumLayers)
		if err != nil {
			return nil, err
		}
		out = append(out, RankRow{
			Rank: i, Tensor: i % tensor, Stage: stage, Layer0: first, Layers: layers,
			Weights: r.Ledger.Bytes(backend.Weights.String()), KV: r.Ledger.Bytes(backend.KV.String()), Total: r.Ledger.Total(), Host: r.Ledger.HostTotal(),
		})
	}
	return out, nil
}

// manyRanks is the number of ranks above which equal neighbours share a line of the verbose table, as
// they do in the short one.
const manyRanks = 16

// writeRanks writes the table of ranks. The one with the largest total is the tightest.
func (p *Plan) writeRanks(t *text, verbose bool) error {
	if p.Ranks == 1 {
		return nil
	}
	rows, err := p.RankRows()
	if err != nil {
		return err
	}
	b := p.resolved.in.Model.Source.Build
	cells := [][]string{{"rank"}, {"tensor"}, {"stage"}, {"layers"}, {"weights"}, {"KV cache"}, {"total"}, {""}}
	for i := 0; i < len(rows); {
		n := 1
		for (!verbose || len(rows) > manyRanks) && i+n < len(rows) && rows[i+n].holds() == rows[i].holds() {
			if next := rows[i+n]; next.Stage != rows[i].Stage && (len(rows) <= manyRanks || rows[i].Tensor > 0) {
				break // a stage has a line of its own if there is room
			}
			n++
		}
		first, last := rows[i], rows[i+n-1]
		layers := span(first.Layer0, last.Layer0+last.Layers-1)
		if first.Stage != last.Stage {
			layers += fmt.Sprintf(", %d each", first.Layers)
		}
		mark := ""
		if first.Rank <= p.Tightest && p.Tightest <= last.Rank {
			mark = "the tightest"
		}
		for k, cell := range []string{
			span(first.Rank, last.Rank), span(min(first.Tensor, last.Tensor)+1, last.Tensor+1) + fmt.Sprintf("/%d", max(1, b.Shard.World)), span(first.Stage+1, last.Stage+1) + fmt.Sprintf("/%d", max(1, b.Pipe.World)),
			layers, Size(first.Weights), Size(first.KV), Size(first.Total), mark,
		} {
			cells[k] = append(cells[k], cell)
		}
		i += n
	}
	t.line("")
	t.line("ranks")
	t.grid(cells)
	return nil
}

// span returns "3", or "0–7".
func span(first, last int) string {
	if first == last {
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d–%d", first, last)
}
