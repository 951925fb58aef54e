package agenda

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"vapp.dev/internal/goldentest"
)

// TestMain also runs the parts: the tests start this test binary.
func TestMain(m *testing.M) {
	switch os.Getenv("PART") {
	case "":
		flag.Parse()
		os.Exit(m.Run())
	case "figures":
		fmt.Print(`{"rate": 5}`)
	case "text":
		fmt.Println("some text")
	case "fail":
		fmt.Fprintln(os.Stderr, "what went wrong")
		os.Exit(3)
	case "skip":
		fmt.Fprintln(os.Stderr, "nothing to measure here")
		os.Exit(Skipped)
	case "crash":
		fmt.Println("before the end")
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "hang": // with a child that keeps the pipes open
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "PART=sleep")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			fmt.Println(err)
		}
		fmt.Println("waiting")
		select {}
	case "asked": // prints its result when interrupted
		interrupted := make(chan os.Signal, 1)
		signal.Notify(interrupted, os.Interrupt)
		<-interrupted
		fmt.Print(`{"rows": [1]}`)
		os.Exit(1)
	case "deaf":
		signal.Ignore(os.Interrupt)
		time.Sleep(time.Minute)
	case "sleep":
		time.Sleep(time.Minute)
	case "flood":
		for i := range 40_000 {
			fmt.Fprintln(os.Stderr, "line", i)
		}
	}
	os.Exit(0)
}

func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// TestDo checks that parts run whatever happens to the parts before them, and that each result has
// the right status.
func TestDo(t *testing.T) {
	exe := self(t)
	part := func(name string, k Kind, most time.Duration) Part {
		return Part{Name: name, Title: name, Kind: k, Budget: most, Args: []string{exe}, Env: []string{"PART=" + name}}
	}
	parts := []Part{
		part("crash", Text, time.Minute), part("hang", Text, 300*time.Millisecond), part("fail", Bench, time.Minute), part("skip", Rates, time.Minute),
		{Name: "absent", Kind: Text, Budget: time.Minute, Args: []string{"no-such-program-at-all"}},
		part("flood", Text, time.Minute), part("text", Rates, time.Minute), part("figures", Rates, time.Minute),
		part("asked", Bench, time.Second), part("deaf", Bench, 600*time.Millisecond),
		{Name: "no tests", Kind: Tests, Budget: time.Minute, Args: []string{exe}, Env: []string{"PART=text"}},
		{Name: "lacks", Kind: Bench, Budget: time.Minute, Args: []string{exe}, Env: []string{"PART=fail"}, Without: "what went"},
		{Name: "not that", Kind: Bench, Budget: time.Minute, Args: []string{exe}, Env: []string{"PART=fail"}, Without: "no library"},
	}
	calls := 0
	r := Run{Bundle: "/", Whole: 5 * time.Minute, Each: func(all []Result) error {
		if calls++; len(all) != calls {
			t.Errorf("call %d has %d results", calls, len(all))
		}
		return nil
	}}
	got, err := r.Do(context.Background(), parts)
	if err != nil || len(got) != len(parts) || calls != len(parts) {
		t.Fatalf("%d results of %d, %d calls, %v", len(got), len(parts), calls, err)
	}
	want := map[string]Status{"crash": Crashed, "hang": Late, "fail": Failed, "skip": Absent, "absent": Absent, "flood": OK, "text": Failed, "figures": OK, "no tests": Failed, "asked": Late, "deaf": Late, "lacks": Absent, "not that": Failed}
	for _, res := range got {
		if res.Status != want[res.Name] {
			t.Errorf("%s: %s (%s), want %s", res.Name, res.Status, res.Why, want[res.Name])
		}
		if len(res.Errors) > 70<<10 {
			t.Errorf("%s: %d bytes kept", res.Name, len(res.Errors))
		}
	}
	if !strings.Contains(got[0].Output, "before the end") || !strings.Contains(got[2].Errors, "what went wrong") || got[2].Why != "exit status 3: what went wrong" || got[3].Why != "nothing to measure here" {
		t.Errorf("what they said is lost: %+v", got[:4])
	}
	if !strings.HasSuffix(strings.TrimSpace(got[5].Errors), "line 39999") || !strings.HasPrefix(got[5].Errors, "…\nline ") {
		t.Errorf("of a flood the end is kept, not %.40q", got[5].Errors)
	}
	if string(got[7].Data) != `{"rate": 5}` || string(got[8].Data) != `{"rows": [1]}` {
		t.Errorf("figures: %s, %s", got[7].Data, got[8].Data)
	}
	if s := got[9].Seconds; s > 30 {
		t.Errorf("what does not listen ended after %v s", s)
	}
}

// TestWhole checks that parts without time left, or after a needed part that failed, are listed but not run, that
// programs are found elsewhere, and that an interrupted run keeps its results.
func TestWhole(t *testing.T) {
	exe := self(t)
	parts := []Part{{Name: "a", Kind: Text, Budget: time.Minute, Args: []string{exe}, Env: []string{"PART=text"}}}
	keep := func([]Result) error { return nil }
	got, err := Run{Bundle: "/", Whole: time.Millisecond, Each: keep}.Do(context.Background(), parts)
	if err != nil || got[0].Status != NotRun {
		t.Errorf("%+v, %v", got, err)
	}
	needed := append([]Part{{Name: "first", Kind: Text, Budget: time.Minute, Args: []string{exe}, Env: []string{"PART=fail"}, Needed: true}}, parts...)
	for keep, want := range map[bool]Status{false: NotRun, true: OK} {
		got, err := Run{Bundle: "/", Whole: time.Minute, KeepGoing: keep, Each: func([]Result) error { return nil }}.Do(context.Background(), needed)
		if err != nil || len(got) != 2 || got[0].Status != Failed || got[1].Status != want || want == NotRun && got[1].Why != "first failed" {
			t.Errorf("keep going %v: %+v, %v", keep, got, err)
		}
	}
	elsewhere := Run{Bundle: "/", Whole: time.Minute, Also: []string{t.TempDir(), filepath.Dir(exe)}, Each: keep}
	parts[0].Args = []string{filepath.Base(exe)}
	if got, err := elsewhere.Do(context.Background(), parts); err != nil || got[0].Status != OK {
		t.Errorf("a program of another directory: %+v, %v", got, err)
	}
	parts[0].Args = []string{exe}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	got, err = Run{Bundle: "/", Whole: time.Minute, Each: keep}.Do(ctx, append(parts, parts...))
	if err == nil || len(got) != 1 || got[0].Status == OK {
		t.Errorf("%+v, %v", got, err)
	}
}

func read(t testing.TB, file string, v any) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(raw, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestPage compares the report of testdata/results.json, which has parts of every kind and status,
// with testdata/report.md.
func TestPage(t *testing.T) {
	var results []Result
	read(t, "testdata/results.json", &results)
	got := Page(Head{Run: "B: speed", Machine: "16 CPUs, linux/amd64", When: "2026-01-02 03:04 UTC", Bundle: "vapp v0"}, results)
	goldentest.Compare(t, "testdata/report.md", got)
}

// TestDependentPart: a part with plain launches is compared with the part that it names, and is in no list of targets.
func TestDependentPart(t *testing.T) {
	var results []Result
	read(t, "testdata/results.json", &results)
	i := slices.IndexFunc(results, func(r Result) bool { _, ok := benchOf(r); return ok && r.GraphsPart == "" })
	plain := results[i]
	plain.Name, plain.Title, plain.DependentPart = "as plain", "as plain", plain.Name
	page := Page(Head{}, append(results, plain))
	for _, want := range []string{"## Dependent launches beside plain ones", "| part | streams | context | decode by dependent launches | by plain ones | times |"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
	_, targets, found := strings.Cut(page, "## Targets")
	if rows, _, _ := strings.Cut(targets, "\n## "); !found || strings.Contains(rows, "as plain") {
		t.Errorf("targets: %s", rows)
	}
}

// FuzzPage checks that any output gives a page.
func FuzzPage(f *testing.F) {
	var results []Result
	read(f, "testdata/results.json", &results)
	for _, r := range results {
		f.Add(string(r.Kind), string(r.Status), r.Output, []byte(r.Data))
	}
	f.Add("rates", "ok", "", []byte(`{"a":[{"b":1},2,{"c":[]}],"d":[],"e":{}}`))
	f.Fuzz(func(t *testing.T, kind, status, output string, data []byte) {
		r := Result{Name: "a", Kind: Kind(kind), Status: Status(status), Output: output, Data: data}
		b := r
		b.Name, b.GraphsPart = "b", "a"
		if p := Page(Head{}, []Result{r, b}); !strings.HasPrefix(p, "# GPU check") {
			t.Error(p)
		}
	})
}

// TestReason checks the line that says why a process failed.
func TestReason(t *testing.T) {
	for _, c := range []struct {
		res  Result
		want string
	}{
		{Result{Kind: Bench, Errors: "loading\nvapp: no driver\n"}, "vapp: no driver"},
		{Result{Kind: Serving, Errors: "vapp: no driver\nexit status 1\n"}, "vapp: no driver"},
		{Result{Kind: Tests, Output: "=== RUN   TestA\n    a_test.go:4: the driver is too old\n    a_test.go:5: more\n--- FAIL: TestA\n", Errors: "exit"}, "the driver is too old"},
		{Result{Kind: Tests, Output: "    a_test.go:4: FIGURE {}\n    a_test.go:5: wrong\n"}, "wrong"},
		{Result{Kind: Tests, Output: "--- FAIL: TestA\n", Errors: "broken\n"}, "broken"},
		{Result{Kind: Text, Errors: strings.Repeat("é", 151)}, strings.Repeat("é", 150) + "…"},
		{Result{Kind: Text}, ""},
	} {
		if got := reason(&c.res); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
