package appliance

import (
	"path/filepath"
	"testing"

	"vapp.dev/appliance/api"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
)

// TestBodyBudgetIsPlanned checks that the plan includes the memory that the server needs
// for the largest body, within the limit of Go's heap.
func TestBodyBudgetIsPlanned(t *testing.T) {
	dir := t.TempDir()
	if err := enginetest.WriteLlama(filepath.Join(dir, "toy"), enginetest.Llama{Seed: 3}); err != nil {
		t.Fatal(err)
	}
	for _, most := range []string{"64KiB", "16MiB", "1GiB"} {
		profile := filepath.Join(dir, "p.cue")
		writeFile(t, profile, profileText(filepath.Join(dir, "toy"), `serve: limits: maxBodyBytes: "`+most+`"`))
		p, err := Prepare(profile, Machine{Backends: []backend.Opener{ref.Opener{}}})
		if err != nil {
			t.Fatal(err)
		}
		want := api.BodyBudget(int64(p.Profile.Serve.Limits.MaxBodyBytes))
		if p.Plan.BodyBytes != want || p.Plan.GoMemoryLimit < want {
			t.Errorf("maxBodyBytes %s: %d bytes planned, %d needed, the limit of Go's heap is %d", most, p.Plan.BodyBytes, want, p.Plan.GoMemoryLimit)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}
