package cudatest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// fixture is the environment variable that enables TestApartFixture.
const fixture = "VAPP_CUDA_APART_FIXTURE"

// TestApartFixture is the test that TestApart runs.
func TestApartFixture(t *testing.T) {
	if os.Getenv(fixture) == "" {
		t.Skip("not run: TestApart runs it")
	}
	Apart(t, 2, []string{"panics", "first", "ends", "last"}, func(t *testing.T, name string) {
		switch name {
		case "panics":
			panic("what a kernel did")
		case "ends":
			os.Exit(3)
		}
		for _, s := range []string{"part", "other"} {
			t.Run(s, func(t *testing.T) {})
		}
	})
}

// TestApart checks that, on a GPU, subtests that end their process hide nothing of other
// subtests, and that the process of a subtest runs what the pattern selects.
func TestApart(t *testing.T) {
	for pattern, want := range map[string]map[string]bool{ // expected lines, and whether they must appear
		"TestApartFixture": {
			"--- FAIL: TestApartFixture/panics": true, "what a kernel did": true,
			"--- FAIL: TestApartFixture/ends": true, "exit status 3": true,
			"--- PASS: TestApartFixture/first": true, "--- PASS: TestApartFixture/first/part": true,
			"--- PASS: TestApartFixture/last": true, "--- PASS: TestApartFixture/last/other": true,
		},
		"TestApartFixture/last/other": {
			"--- PASS: TestApartFixture/last": true, "--- PASS: TestApartFixture/last/other": true,
			"TestApartFixture/last/part": false, "TestApartFixture/first": false, "panics": false,
		},
	} {
		c := exec.Command(os.Args[0], "-test.v", "-test.run="+pattern)
		c.Env = append(os.Environ(), fixture+"=1", "VAPP_GPU=1")
		out, err := c.CombinedOutput()
		if failed := strings.Contains(string(out), "--- FAIL"); failed != (err != nil) {
			t.Errorf("%s: %v", pattern, err)
		}
		for line, there := range want {
			if strings.Contains(string(out), line) != there {
				t.Errorf("%s: %q there: %v, want %v\n%s", pattern, line, !there, there, out)
			}
		}
	}
}
