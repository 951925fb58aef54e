package plan_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/schema"
)

func TestDiff(t *testing.T) {
	p, m := shipped(t, "smollm2.cue"), smol(t)
	f := server
	f.Cores = 4
	old := made(t, in(p, m, f))
	if d := plan.Diff(old, made(t, in(p, m, f))); !d.Same() || d.String() != "the plans are the same\n" {
		t.Errorf("the same plan differs from itself: %v", d)
	}
	q := *p
	q.MaxModelLen, q.Memory.KVCache, q.Memory.KVCacheDtype = 4096, 512<<20, "float32"
	q.Scheduler.MaxNumSeqs, q.Scheduler.PrefixCaching, q.Memory.Reserve = 32, false, 0
	got := plan.Diff(old, made(t, in(&q, m, f))).String()
	want := `
  maxNumSeqs                                 64 →                 32        −32
  kv cache dtype             bfloat16 → float32
  prefixCaching              true → false
  KV cache tokens                        46,560 →             11,648        −34,912
  longest sequence, tokens                8,192 →              4,096        −4,096
  sequences of 1,024 tokens                  45 →                 11        −34
  kv                              1,072,930,816 →        536,788,992 bytes  −511.3 MiB
  workspace                          12,787,712 →          6,397,952 bytes  −6.1 MiB
  step                                2,973,696 →          1,449,984 bytes  −1.5 MiB
  text                              285,212,672 →        276,824,064 bytes  −8.0 MiB
  runtime                           296,815,872 →        287,589,376 bytes  −8.8 MiB
  reserve                           268,435,456 →                  0 bytes  −256.0 MiB
  total                           2,369,752,320 →      1,539,646,464 bytes  −791.7 MiB
`
	if d := cmp.Diff(want, "\n"+got); d != "" {
		t.Error(d)
	}
}

func TestCompare(t *testing.T) {
	p := made(t, in(shipped(t, "smollm2.cue"), smol(t), server))
	usage := p.Account.Reservation.Arenas
	usage[backend.Scratch] += 4096
	usage[backend.StepIO]--
	var got []string
	for _, l := range p.Ledger.Compare(usage) {
		got = append(got, fmt.Sprintf("%s %d", l.Item, l.Difference()))
	}
	want := []string{"weights 0", "kv 0", "scratch 4096", "workspace 0", "step -1"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	l := plan.Line{Item: "kv", Planned: 1 << 30, Actual: 1<<30 - 4096}
	if got := l.String(); got != "memory kv: plan 1,073,741,824 bytes (1.00 GiB), actual 1,073,737,728, difference −4,096" {
		t.Error(got)
	}
}

func TestCheckFree(t *testing.T) {
	p := made(t, in(shipped(t, "smollm2.cue"), smol(t), server))
	need := p.Ledger.Total() - p.Ledger.Bytes("reserve")
	for _, free := range []int64{0, need, need + 1} {
		if err := p.CheckFree(free); err != nil {
			t.Errorf("%d bytes free: %v", free, err)
		}
	}
	var no *plan.NotFreeError
	if err := p.CheckFree(need - 1<<20); !errors.As(err, &no) || no.Need != need || !strings.Contains(err.Error(), "1.0 MiB missing") {
		t.Errorf("1 MiB too little: %v", err)
	}
}

// TestHostLimit: a plan on a GPU of this machine is refused where a limit is below what it takes beside the GPU's memory.
func TestHostLimit(t *testing.T) {
	d, err := devices.Find("a100-80g")
	if err != nil {
		t.Fatal(err)
	}
	i := plan.Inputs{Profile: shipped(t, "smollm2.cue"), Model: smol(t), Opener: cuda.Opener{}, Facts: d.Facts("cuda")}
	need := made(t, i).HostNeed()
	if need <= 0 {
		t.Fatalf("the plan takes %d bytes of the machine", need)
	}
	for _, total := range []int64{0, need} {
		i.Host.Total = total
		if err := made(t, i).CheckFree(0); err != nil {
			t.Errorf("a limit of %d bytes: %v", total, err)
		}
	}
	i.Host.Total = need - 1
	var no *plan.HostLimitError
	p := made(t, i)
	if err := p.CheckFree(0); !errors.As(err, &no) || no.Need != need || !strings.Contains(err.Error(), ", 1 bytes missing") {
		t.Errorf("1 byte too little: %v", err)
	}
	j, err := plan.Join([]*plan.Plan{p})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.CheckFree(); !errors.As(err, &no) {
		t.Errorf("the joint plan, 1 byte too little: %v", err)
	}
}

// TestNumbers: absurd machines and profiles give an error or a plan, never an overflow.
func TestNumbers(t *testing.T) {
	p, m := shipped(t, "smollm2.cue"), smol(t)
	for _, total := range []int64{1, 1 << 40, 1 << 62, 1<<63 - 1} {
		for _, kv := range []schema.Bytes{0, 1, 1 << 50} {
			q, f := *p, server
			f.TotalBytes = total
			if q.Memory.KVCache = kv; kv == 0 {
				q.Memory.Utilization = 1
			}
			q.Memory.Reserve = 1 << 50
			made, err := plan.Make(in(&q, m, f))
			if err != nil {
				continue
			}
			for _, i := range made.Ledger {
				if i.Bytes < 0 {
					t.Errorf("%d bytes of memory: %s has %d", total, i.Name, i.Bytes)
				}
			}
		}
	}
}
