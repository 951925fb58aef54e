package appliance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
)

// TestStatus checks the plan, the allocated bytes and the figures of GET /admin/status.
func TestStatus(t *testing.T) {
	s := start(t, `serve: servedModelName: ["first"]`)
	r, err := s.ask(t.Context(), "first", 5, false)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	s.edit(t, "rename", `serve: servedModelName: ["second"]`)
	s.latest(t, Applied)
	code, text := s.get(t, "/admin/status")
	var got status
	if err := json.Unmarshal([]byte(text), &got); err != nil || code != http.StatusOK {
		t.Fatalf("got %d %s (%v), want 200 and JSON", code, text, err)
	}
	var sum int64
	for _, g := range got.Plan.Segments {
		sum += g.Bytes
	}
	if sum != got.Plan.Total || sum == 0 || len(got.Plan.Lengths) == 0 {
		t.Errorf("the bar is %d of %d bytes, %d lengths", sum, got.Plan.Total, len(got.Plan.Lengths))
	}
	if len(got.Ledger) < 3 || got.Ledger[0].Item != "weights" || got.Ledger[0].Plan != got.Ledger[0].Actual {
		t.Errorf("ledger %+v", got.Ledger)
	}
	if got.Phase != "ready" || got.Models[0] != "second" || got.Now.Generated < 5 || len(got.Reloads) != 1 || got.Reloads[0].Outcome != Applied {
		t.Errorf("%s", text)
	}
	if got.Sampling == nil || got.Sampling.RepetitionPenalty == 0 || got.Sampling.ModelLen == 0 {
		t.Errorf("sampling %+v", got.Sampling)
	}
	if want := int64(s.live.Load().profile.Serve.Limits.MaxBodyBytes); got.MaxBody != want || want < 1 {
		t.Errorf("bodies of at most %d bytes, want %d", got.MaxBody, want)
	}
	if strings.Contains(text, "limit_mm_per_prompt") {
		t.Errorf("a model of text has limits of images: %s", text)
	}
	if _, page := s.get(t, "/"); !strings.HasPrefix(page, "<!DOCTYPE html>") {
		t.Errorf("page: %.100s", page)
	}
	s.edit(t, "rename", `serve: {servedModelName: ["second"], apiKeys: ["k"]}`)
	s.eventually(t, "the guard", func() bool { return s.status(t, "/admin/status") == http.StatusUnauthorized })
	if code, _ := s.get(t, "/"); code != http.StatusOK {
		t.Errorf("the page behind a key: %d", code)
	}
}

// blind is backend ref on a machine of unknown memory size.
type blind struct{ ref.Opener }

func (b blind) Probe() (backend.Facts, error) {
	f, err := b.Opener.Probe()
	f.TotalBytes = 0
	return f, err
}

// TestWarned checks that the plan's warnings are also in the log, in both formats.
func TestWarned(t *testing.T) {
	toy := filepath.Join(t.TempDir(), "toy")
	if err := enginetest.WriteLlama(toy, enginetest.Llama{Seed: 3}); err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{"text", "json"} {
		s := serveOn(t, blind{}, toy, fmt.Sprintf("log: format: %q", form))
		if want := "plan: the machine's memory is unknown"; !strings.Contains(s.log.String(), want) {
			t.Errorf("%s: no %q in\n%s", form, want, s.log)
		}
	}
}
