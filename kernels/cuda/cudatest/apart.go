package cudatest

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// apart is the environment variable that names the subtest for a process started by Apart.
const apart = "VAPP_CUDA_APART"

// Figure begins a figure that a test logs: a JSON object follows, for a report.
const Figure = "FIGURE {"

// Apart runs the subtests of a test in a file. On this machine's GPU (if VAPP_GPU says that
// there is one) each subtest has its own process, and most of them run at once. A device error
// ends everything that a process has on the device, and a kernel that hangs blocks its process;
// other subtests must not suffer from either. A process that hangs has the time of the test,
// less the time for reporting it.
func Apart(t *testing.T, most int, names []string, run func(t *testing.T, name string)) {
	t.Helper()
	own, set := os.LookupEnv(apart)
	slots := make(chan bool, most)
	for _, name := range names {
		switch {
		case set && name != own:
		case set, os.Getenv("VAPP_GPU") == "":
			t.Run(name, func(t *testing.T) { run(t, name) })
		default:
			test := t.Name()
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				slots <- true
				defer func() { <-slots }()
				alone(t, test, name)
			})
		}
	}
}

// alone runs a subtest in a process of this program and reports what the process prints.
func alone(t *testing.T, test, name string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const late = 2 * time.Second
	ctx, args := t.Context(), []string{"-test.v"}
	if end, ok := t.Deadline(); ok {
		end = end.Add(-2 * late)
		var stop func()
		ctx, stop = context.WithDeadline(ctx, end)
		defer stop()
		args = append(args, "-test.timeout="+max(late, time.Until(end)-late).String())
	}
	pattern := "^" + test + "$"
	if asked := strings.SplitN(flag.Lookup("test.run").Value.String(), "/", 3); len(asked) == 3 {
		pattern += "/./" + asked[2]
	}
	cmd := exec.CommandContext(ctx, exe, append(args, "-test.run="+pattern)...)
	cmd.Env, cmd.WaitDelay = append(os.Environ(), apart+"="+name), late
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var kept []string // tests, each by its line, and figures
	ended := 0
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "--- ") {
			ended++
		} else if !strings.Contains(line, Figure) {
			continue
		}
		kept = append(kept, line)
	}
	if ended < 2 {
		t.Fatalf("no test of it ran\n%s", out)
	}
	t.Log("\n" + strings.Join(kept, ""))
}
