package fairqueue

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"vapp.dev/internal/goldentest"
)

// TestGolden plays testdata/*.txtar. Section "in" has one command a line:
//
//	most N            a new queue of at most N jobs
//	add CLIENT COST...  one job for each cost
//	remove JOB
//	next [N]
//
// and "out" has the results. A job is called CLIENT:COST.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no goldens", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			q, jobs := NewQueue(100), map[string]*Job{}
			for line := range strings.Lines(string(a.Files[0].Data)) {
				if f := strings.Fields(line); len(f) > 0 {
					q = play(t, q, jobs, &out, f)
				}
			}
			a.Files = []txtar.File{a.Files[0], {Name: "out", Data: []byte(out.String())}}
			goldentest.CompareArchive(t, file, a)
		})
	}
}

// play executes one command and returns the queue for the next one.
func play(t *testing.T, q *Queue, jobs map[string]*Job, out *strings.Builder, f []string) *Queue {
	name := func(j *Job) string { return fmt.Sprintf("%s:%d", j.Client, j.Cost) }
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	switch f[0] {
	case "most":
		return NewQueue(number(f[1]))
	case "add":
		for _, cost := range f[2:] {
			j := &Job{Client: f[1], Cost: number(cost)}
			jobs[name(j)] = j
			if refused := q.Push(j); refused != nil {
				fmt.Fprintf(out, "%s refuses %s\n", name(j), name(refused))
			}
		}
	case "remove":
		fmt.Fprintf(out, "removed %s: %v\n", f[1], q.Remove(jobs[f[1]]))
	case "next":
		n := 1
		if len(f) > 1 {
			n = number(f[1])
		}
		for range n {
			if j := q.Next(); j != nil {
				fmt.Fprintf(out, "%s ", name(j))
			} else {
				fmt.Fprint(out, "none ")
			}
		}
		fmt.Fprintf(out, "| %d wait\n", q.Len())
	default:
		t.Fatalf("no command %q", f[0])
	}
	return q
}
