package plan_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/internal/goldentest"
	"vapp.dev/schema"
)

// TestJointGolden plans the profiles of each file together: the sections *.cue, for a machine with
// the memory of the comment's line "memory: N". A profile's model is the toy.
func TestJointGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/joint/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no goldens", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			j, err := plan.MakeJoint(jointInputs(t, a))
			got := ""
			var refused *plan.JointError
			switch {
			case errors.As(err, &refused):
				got = refused.Error() + "\n\n" + fmt.Sprintf("%+v", refused)
			case err != nil:
				got = err.Error() + "\n"
			default:
				got = j.String()
			}
			for k, f := range a.Files {
				if f.Name == "text" {
					a.Files[k].Data = []byte(got)
				}
			}
			goldentest.CompareArchive(t, file, a)
		})
	}
}

// jointInputs returns the inputs of an archive.
func jointInputs(t *testing.T, a *txtar.Archive) (all []plan.Inputs) {
	t.Helper()
	var memory schema.Bytes
	for line := range strings.Lines(string(a.Comment)) {
		if v, ok := strings.CutPrefix(line, "memory: "); ok {
			n, err := schema.ParseBytes(strings.TrimSpace(v))
			if err != nil {
				t.Fatal(err)
			}
			memory = n
		}
	}
	for _, f := range a.Files {
		if !strings.HasSuffix(f.Name, ".cue") {
			continue
		}
		p := profile(t, f.Name, "import \"vapp.dev/schema\"\n\nschema.#Profile & {\n"+string(f.Data)+"}\n")
		facts := server
		facts.TotalBytes = int64(memory)
		all = append(all, in(p, toy(t), facts))
	}
	return all
}

// joint plans texts of profiles together on a machine with that much memory.
func joint(t *testing.T, memory string, texts ...string) (*plan.Joint, error) {
	t.Helper()
	a := &txtar.Archive{Comment: []byte("memory: " + memory + "\n")}
	for i, text := range texts {
		a.Files = append(a.Files, txtar.File{Name: fmt.Sprintf("%c.cue", 'a'+i), Data: []byte(text + "\n")})
	}
	return plan.MakeJoint(jointInputs(t, a))
}

// small is a profile of a small server.
func small(name, more string) string {
	return fmt.Sprintf("name: %q\nmodel: source: \"toy\"\nmaxModelLen: 64\nscheduler: maxNumSeqs: 4\nserve: {servedModelName: [%q], limits: maxBodyBytes: \"1MiB\"}\n%s", name, name, more)
}

// TestJointLedger: the ledger of all is the sum of the members' ledgers, but for what the process
// has once, and each set that is listed fits, and no larger one does.
func TestJointLedger(t *testing.T) {
	j, err := joint(t, "64GiB", small("a", `memory: kvCache: "16MiB"`), small("b", `memory: kvCache: "32MiB"`))
	if err != nil {
		t.Fatal(err)
	}
	var apart int64
	for _, m := range j.Members {
		apart += m.Plan.Ledger.Total()
	}
	together := plan.JointTotal(j, 0, 1)
	shared := j.Members[0].Plan.Ledger.Bytes("children") + j.Members[0].Plan.Ledger.Bytes("reserve")
	const once = 80<<20 + 64<<20 // heapBase, binaryPages
	const listener = 4<<20 + 1<<20
	if want := apart - once - shared + listener; together != want {
		t.Errorf("together %d bytes, want %d", together, want)
	}
	if none := plan.JointTotal(j); none >= plan.JointTotal(j, 0) || plan.JointTotal(j, 0) >= together {
		t.Error("a loaded model takes no more than an unloaded one")
	}
}

// TestJointSets: with memory for two of three models on request, all pairs are listed, and with
// memory for all, one set.
func TestJointSets(t *testing.T) {
	text := func(name string) string {
		return small(name, "memory: kvCache: \"1GiB\"\nserve: idle: load: \"onRequest\"")
	}
	base := small("base", `memory: kvCache: "16MiB"`)
	all := []string{base, text("a"), text("b"), text("c")}
	big, err := joint(t, "64GiB", all...)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(big.Sets); got != "[[1 2 3]]" {
		t.Errorf("all fit, and the sets are %s", got)
	}
	two := plan.JointTotal(big, 0, 1, 2)
	for _, c := range []struct {
		memory int64
		want   string
	}{
		{two, "[[1 2] [1 3] [2 3]]"}, {two - 1, "[[1] [2] [3]]"},
	} {
		j, err := joint(t, fmt.Sprint(c.memory), all...)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(j.Sets); got != c.want {
			t.Errorf("%d bytes: sets %s, want %s", c.memory, got, c.want)
		}
	}
	one := plan.JointTotal(big, 0, 1)
	_, err = joint(t, fmt.Sprint(one-1), all...)
	var e *plan.JointError
	if !errors.As(err, &e) || e.Loads != "a" || e.Need-e.Have != 1 {
		t.Errorf("memory for no model on request: %v", err)
	}
}

// TestJointChanges: each change that is listed makes the models fit, and each group does.
func TestJointChanges(t *testing.T) {
	texts := []string{small("a", `memory: kvCache: "2GiB"`), small("b", `memory: kvCache: "2GiB"`)}
	_, err := joint(t, "4GiB", texts...)
	var e *plan.JointError
	if !errors.As(err, &e) || len(e.Changes) == 0 || len(e.Groups) == 0 {
		t.Fatalf("%+v", err)
	}
	for _, c := range e.Changes {
		if c.Path != "memory.kvCache" {
			t.Errorf("%v", c)
			continue
		}
		n := 0
		if c.Profile == "b" {
			n = 1
		}
		changed := append([]string{}, texts...)
		changed[n] = strings.Replace(changed[n], "kvCache: "+c.Old, "kvCache: "+c.New, 1)
		if _, err := joint(t, "4GiB", changed...); err != nil || changed[n] == texts[n] {
			t.Errorf("with %v: %v", c, err)
		}
	}
	for i := range texts {
		texts[i] += "\nserve: idle: load: \"onRequest\""
	}
	if _, err := joint(t, "4GiB", texts...); err != nil {
		t.Errorf("with both on request: %v", err)
	}
}

// TestJointPlaces: models on a GPU and on the machine's cores share the host's memory only.
func TestJointPlaces(t *testing.T) {
	a := &txtar.Archive{Comment: []byte("memory: 8GiB\n"), Files: []txtar.File{
		{Name: "a.cue", Data: []byte(small("a", "memory: utilization: 0.9\n"))}, {Name: "b.cue", Data: []byte(small("b", "memory: kvCache: \"1GiB\"\n"))},
	}}
	all := jointInputs(t, a)
	all[0].Opener = cuda.Opener{}
	device, err := devices.Find("l4")
	if err != nil {
		t.Fatal(err)
	}
	all[0].Facts = device.Facts("cuda")
	j, err := plan.MakeJoint(all)
	if err != nil {
		t.Fatal(err)
	}
	text := j.String()
	for _, want := range []string{"of 22.03 GiB on NVIDIA L4", "of 8.00 GiB on 16-core server"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
