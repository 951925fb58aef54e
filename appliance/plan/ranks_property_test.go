package plan_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/models"
)

// TestRandomRanks: for models of the catalogue split at random, every page of every class of the pool is
// inside of each rank's arena, digests are those of a second plan, and the ranks hold together what
// the whole model has.
func TestRandomRanks(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 21))
	planned := 0
	for planned < 12 {
		name := one(r, models.CatalogueNames()...)
		tensor, pipe := one(r, 1, 2, 3, 4, 8), one(r, 1, 2, 3, 5, 7)
		if tensor*pipe == 1 {
			continue
		}
		i := ranked(t, "meta-llama/Llama-3.2-1B", 4<<40, `maxModelLen: 2048, scheduler: {maxNumSeqs: 4, maxNumBatchedTokens: 64}`)
		i.Profile.Model.Source, i.Opener = name, ref.Opener{}
		i.Profile.Parallel.Tensor, i.Profile.Parallel.Pipeline = tensor, pipe
		i.Profile.Memory.SwapSpace = 1 << 30
		i.Model = catalogued(t, name)
		whole := i.Model
		i, err := built(i)
		if err != nil {
			continue // a size that the family does not have
		}
		p, err := plan.Make(i)
		if err != nil {
			var short *plan.DoesNotFitError
			if errors.As(err, &short) {
				t.Fatal(err)
			}
			continue // a shape that the backend does not run
		}
		planned++
		t.Run(fmt.Sprintf("%s %d×%d", name, tensor, pipe), func(t *testing.T) {
			all := everyRank(t, p)
			for n, r := range all {
				pagesInside(t, r)
				if b := r.Model.Source.Build; r.Rank != n || r.Tensor != (backend.Shard{Rank: n % tensor, World: tensor}) || r.Pipe != (backend.Shard{Rank: n / tensor, World: pipe}) || b.Shard != r.Tensor || b.Pipe != r.Pipe {
					t.Errorf("rank %d is %v of %+v", n, r, b)
				}
				if n > 0 && r.Slabs != all[0].Slabs {
					t.Errorf("%v has %d slabs, rank 0 %d", r, r.Slabs, all[0].Slabs)
				}
				if again, err := p.RankPlan(n); err != nil || again.Digest() != r.Digest() {
					t.Errorf("%v: %v, or another digest", r, err)
				}
				if got, all := r.Account.Reservation.Step, r.Account.WholeStep; got.Tokens != all.Tokens || got.Samples != all.Samples || got.Axes != all.Axes || got.OutputCols != all.OutputCols {
					t.Errorf("%v: step buffers %+v, rank 0 fills %+v", r, got, all)
				}
			}
			sumsHold(t, whole, all, tensor, pipe)
		})
	}
}

// sumsHold: what the ranks hold of the matrices of a group is what the whole model has. Each rank may hold all of
// matrices that are not divided, and keys and values of more ranks than heads.
func sumsHold(t *testing.T, whole *engine.Model, all []*plan.RankPlan, tensor, pipe int) {
	t.Helper()
	count := func(weights []backend.WeightSpec) map[string]int64 {
		out := map[string]int64{}
		for _, w := range weights {
			if w.Use != backend.Vector {
				out[w.Group] += w.Elems()
			}
		}
		return out
	}
	want, got := count(whole.Family.Weights()), map[string]int64{}
	for _, r := range all {
		for group, n := range count(r.Account.Reservation.Weights) {
			got[group] += n
		}
	}
	shares := whole.Config.NumKVHeads%tensor == 0
	for group, n := range want {
		divided := group == "mlp" || group == "experts" || group == "attention" && shares && !strings.Contains(whole.Config.Architecture, "Deepseek")
		if sum := got[group]; divided && sum != n || sum < n || sum > n*int64(tensor*pipe) {
			t.Errorf("%s: %d elements on all ranks, the model has %d", group, sum, n)
		}
	}
	for group := range got {
		if _, ok := want[group]; !ok && group != "head" { // a tied head is a matrix of its own on the last stage
			t.Errorf("ranks have %s, which the model lacks", group)
		}
	}
}
