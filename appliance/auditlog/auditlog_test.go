package auditlog

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var at = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// reloaded returns an entry after which a profile is in force.
func reloaded(profile string) Entry {
	return Entry{At: at, Event: Reload, Trigger: "file", Class: "live", Outcome: "applied", After: State{profile, "plan"}}
}

// opened returns a log in a new folder, and the errors that it reports.
func opened(t *testing.T, l Limits) (*Log, string, *[]error) {
	t.Helper()
	path, errs := filepath.Join(t.TempDir(), "audit.log"), &[]error{}
	log := New(path, l, func(err error) { *errs = append(*errs, err) })
	t.Cleanup(func() { _ = log.Close() })
	return log, path, errs
}

// read returns the numbers of the entries of a log, and the breaks of its chain.
func read(t *testing.T, path string) (seqs []int64, breaks []string) {
	t.Helper()
	var c Chain
	err := Scan(path, func(r Record) {
		if b := c.Check(r); b != nil {
			breaks = append(breaks, strings.TrimPrefix(b.String(), filepath.Dir(path)+"/"))
		}
		if r.Err == nil {
			seqs = append(seqs, r.Entry.Seq)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return seqs, breaks
}

// TestChain checks that a log is whole over several runs of a server, and which changes of the file show.
func TestChain(t *testing.T) {
	log, path, _ := opened(t, Limits{1 << 20, 3})
	for _, p := range []string{"a", "b", "b"} {
		log.Add(reloaded(p))
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	next := New(path, Limits{1 << 20, 3}, func(err error) { t.Error(err) })
	next.Add(reloaded("c"))
	next.Add(reloaded("d"))
	_ = next.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if seqs, breaks := read(t, path); !slices.Equal(seqs, []int64{1, 2, 3, 4, 5}) || breaks != nil {
		t.Errorf("entries %v, breaks %q", seqs, breaks)
	}
	lines := strings.SplitAfter(string(whole), "\n")
	for _, c := range []struct{ name, text, want string }{
		{"removed", lines[0] + lines[1] + lines[3] + lines[4], "audit.log:3: entry 3 is missing"},
		{"two removed", lines[0] + lines[3] + lines[4], "audit.log:2: entries 2 to 3 are missing"},
		{"swapped", lines[1] + lines[0], "audit.log:2: entry 1 follows entry 2"},
		{"changed", lines[0] + strings.Replace(lines[1], `"after":{"profile":"b"`, `"after":{"profile":"x"`, 1) + lines[2],
			"audit.log:3: before entry 3 was in force profile b plan plan, after entry 2 profile x plan plan: a line was changed"},
		{"foreign", lines[0] + "{}\n" + lines[1], "audit.log:2: no entry of an audit log: seq, event or at is missing"},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, breaks := read(t, path); len(breaks) == 0 || breaks[0] != c.want {
			t.Errorf("%s: %q, want %q", c.name, breaks, c.want)
		}
	}
}

// TestTornLine checks that a new run ends the line that a killed one left, and goes on after it.
func TestTornLine(t *testing.T) {
	log, path, _ := opened(t, Limits{1 << 20, 3})
	log.Add(reloaded("a"))
	_ = log.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(whole, `{"seq":2,"at"`...), 0o600); err != nil {
		t.Fatal(err)
	}
	next := New(path, Limits{1 << 20, 3}, func(err error) { t.Error(err) })
	next.Add(reloaded("b"))
	_ = next.Close()
	seqs, breaks := read(t, path)
	if !slices.Equal(seqs, []int64{1, 2}) || len(breaks) != 1 || !strings.HasPrefix(breaks[0], "audit.log:2: no entry") {
		t.Errorf("entries %v, breaks %q", seqs, breaks)
	}
}

// TestRotation checks the files that are kept, and that the chain goes on across them and a new run.
func TestRotation(t *testing.T) {
	log, path, _ := opened(t, Limits{600, 2})
	for i := range 20 {
		log.Add(reloaded(fmt.Sprint("profile", i)))
	}
	_ = log.Close()
	names, err := filepath.Glob(path + "*")
	if err != nil || len(names) != 3 {
		t.Fatalf("%q, %v; want 3 files", names, err)
	}
	for _, n := range names {
		if st, err := os.Stat(n); err != nil || st.Size() > 600 {
			t.Errorf("%s: %v bytes, %v", n, st.Size(), err)
		}
	}
	seqs, breaks := read(t, path)
	if len(seqs) < 4 || seqs[len(seqs)-1] != 20 || breaks != nil {
		t.Errorf("entries %v, breaks %q", seqs, breaks)
	}
	next := New(path, Limits{1, 1}, func(err error) { t.Error(err) }) // a file for each entry
	next.Add(reloaded("z"))
	_ = next.Close()
	if seqs, breaks := read(t, path); !slices.Equal(seqs, []int64{19, 20, 21}) || breaks != nil {
		t.Errorf("entries %v, breaks %q", seqs, breaks)
	}
}

// TestFailureAtStart checks that entries that are lost before the file was read leave a gap that shows.
func TestFailureAtStart(t *testing.T) {
	log, path, _ := opened(t, Limits{1 << 20, 3})
	log.Add(reloaded("a"))
	_ = log.Close()
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	next := New(path, Limits{1 << 20, 3}, func(error) {})
	next.Add(reloaded("b"))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	next.Add(reloaded("c"))
	_ = next.Close()
	if seqs, breaks := read(t, path); !slices.Equal(seqs, []int64{1, 3}) || !slices.Equal(breaks, []string{"audit.log:2: entry 2 is missing"}) {
		t.Errorf("entries %v, breaks %q", seqs, breaks)
	}
}

// TestFailure checks that a log that cannot be written reports once, counts what it loses, and goes on
// with a gap that shows.
func TestFailure(t *testing.T) {
	log, path, errs := opened(t, Limits{1 << 20, 3})
	log.Add(reloaded("a"))
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	log.Add(reloaded("b"))
	log.Add(reloaded("c"))
	if len(*errs) != 1 || (*errs)[0] == nil || log.Lost() != 2 || !log.Failed() {
		t.Fatalf("errors %v, %d lost, failed %v", *errs, log.Lost(), log.Failed())
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	log.Add(reloaded("d"))
	if len(*errs) != 2 || (*errs)[1] != nil || log.Lost() != 2 || log.Failed() {
		t.Errorf("errors %v, %d lost, failed %v", *errs, log.Lost(), log.Failed())
	}
	if seqs, breaks := read(t, path); !slices.Equal(seqs, []int64{1, 4}) || !slices.Equal(breaks, []string{"audit.log:2: entries 2 to 3 are missing"}) {
		t.Errorf("entries %v, breaks %q", seqs, breaks)
	}
}

// TestLongEntry checks that an entry of any length makes one line that can be read.
func TestLongEntry(t *testing.T) {
	log, path, _ := opened(t, Limits{1 << 30, 1})
	e := reloaded("a")
	e.Error = strings.Repeat("\x01", maxLine) // six bytes each in JSON
	for range 2000 {
		e.Changes = append(e.Changes, strings.Repeat("x", 1000))
	}
	log.Add(e)
	if seqs, breaks := read(t, path); len(seqs) != 1 || breaks != nil {
		t.Errorf("entries %v, breaks %q", seqs, breaks)
	}
}

// FuzzScan checks that no content makes the reader panic, and that every line has one record.
func FuzzScan(f *testing.F) {
	line, err := encode(reloaded("a"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(line, line...))
	f.Add([]byte("{}\n\n[1]\nnull"))
	f.Add(bytes.Repeat([]byte("x"), maxLine+2))
	f.Fuzz(func(t *testing.T, text []byte) {
		var c Chain
		n := 0
		err := scan(bytes.NewReader(text), "f", func(r Record) {
			n++
			if b := c.Check(r); b != nil && (b.Line < 1 || b.Line > bytes.Count(text, []byte("\n"))+1) {
				t.Errorf("break at line %d", b.Line)
			}
		})
		full := 0
		for _, l := range bytes.Split(text, []byte("\n")) {
			if len(bytes.TrimSpace(l)) > 0 || len(l) > maxLine {
				full++
			}
		}
		if err != nil || n > full {
			t.Errorf("%d records of %d lines, %v", n, full, err)
		}
	})
}
