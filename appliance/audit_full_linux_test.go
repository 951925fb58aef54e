package appliance

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"vapp.dev/appliance/auditlog"
)

// inOwnMounts runs the test again in a process with mounts of its own, and reports whether this is that process.
func inOwnMounts(t *testing.T) bool {
	t.Helper()
	const mark = "VAPP_OWN_MOUNTS"
	if os.Getenv(mark) != "" {
		if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("not run: mounting a small file system needs root")
	}
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	c.Env, c.SysProcAttr = append(os.Environ(), mark+"=1"), &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if out, err := c.CombinedOutput(); len(out) > 0 && err != nil {
		t.Errorf("%v\n%s", err, out)
	} else if err != nil {
		t.Skipf("not run: no mount namespace here: %v", err)
	}
	return false
}

// TestAuditDiskFull: serving goes on while the file system of the audit log is full, the loss is logged and counted, and
// with space again entries are written again, with a gap in their numbers.
func TestAuditDiskFull(t *testing.T) {
	if !inOwnMounts(t) {
		return
	}
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	path, filler := filepath.Join(disk, "audit.log"), filepath.Join(disk, "filler")
	more := `log: audit: file: "` + path + `", sampling: temperature: `
	s := start(t, more+"0.5")
	s.eventually(t, "the entry of the start", func() bool { return wholeEntries(path) == 2 })

	for err := error(nil); err == nil; { // until the disk is full
		var f *os.File
		if f, err = os.OpenFile(filler, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
			_, err = f.Write(make([]byte, 512))
			f.Close()
		}
	}
	before, changes := entries(t, path), 0
	applied := func(temperature string) {
		t.Helper()
		s.edit(t, "rename", more+temperature)
		s.eventually(t, "temperature "+temperature, func() bool {
			l := s.Reloads()
			return len(l) > 0 && l[0].Outcome == Applied && strings.HasSuffix(l[0].Changes[0], "→ "+temperature+" (live)")
		})
		changes++
		s.eventually(t, "its entry or the loss", func() bool {
			return wholeEntries(path)+int(s.lostEntries()) == len(before)+changes
		})
	}
	for s.lostEntries() == 0 { // the last page of the file has place for some
		if changes > 100 {
			t.Fatal("no entry is lost")
		}
		applied([]string{"0.6", "0.7"}[changes%2])
	}
	if !strings.Contains(s.log.String(), "audit log: an entry was not written; serving goes on") || !strings.Contains(s.log.String(), "no space left on device") {
		t.Error("the log does not say it:", s.log)
	}
	if _, text := s.get(t, "/metrics"); !strings.Contains(text, "vapp_audit_lost_total 1\n") || !strings.Contains(text, `vapp_drift{kind="audit"} 1`) {
		t.Error("the metrics do not say it")
	}
	if _, err := s.reply("hello there", 5); err != nil {
		t.Error(err)
	}

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	applied("0.9")
	got := entries(t, path)
	if last := got[len(got)-1]; last.Seq != int64(len(got))+1 || !strings.Contains(strings.Join(last.Changes, " "), "0.9") {
		t.Errorf("%d entries, the last one is %+v", len(got), last)
	}
}

// wholeEntries counts the entries of an audit log. The last line may be a part of one, which the server takes back.
func wholeEntries(path string) (n int) {
	_ = auditlog.Scan(path, func(r auditlog.Record) {
		if r.Err == nil {
			n++
		}
	})
	return n
}

// entries returns the entries of an audit log, each of which must be whole.
func entries(t *testing.T, path string) (out []auditlog.Entry) {
	t.Helper()
	if err := auditlog.Scan(path, func(r auditlog.Record) {
		if r.Err != nil {
			t.Error(r.Err)
		}
		out = append(out, r.Entry)
	}); err != nil {
		t.Fatal(err)
	}
	return out
}
