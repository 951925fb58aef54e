//go:build clients

package clients

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// members returns the living processes and remembers them, with what they listen on and map in /dev/shm.
func (r *ranked) members() []member {
	var out []member
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		env, _ := os.ReadFile(dir + "/environ")
		_, start, parent := stat(dir)
		known, is := r.known[pid]
		_, child := r.known[parent]
		if !slices.Contains(strings.Split(string(env), "\x00"), r.mark) && !child && (!is || known.start != start) || start == "" {
			continue
		}
		m := member{pid, r.name(dir, pid, string(env)), start}
		if is {
			m.name = known.name
		}
		r.remember(dir) // each time, as sockets and memory come later
		r.known[pid] = m
		out = append(out, m)
	}
	return out
}

// stat returns the name, start time and parent of a process that is no zombie.
func stat(dir string) (name, start string, parent int) {
	b, _ := os.ReadFile(dir + "/stat")
	text := string(b)
	i, k := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if i < 0 || k < i {
		return "", "", 0
	}
	f := strings.Fields(text[k+1:])
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return "", "", 0
	}
	parent, _ = strconv.Atoi(f[1])
	return text[i+1 : k], f[19], parent
}

var rankVariable = regexp.MustCompile(`\x00OMPI_COMM_WORLD_RANK=(\d+)`)

func (r *ranked) name(dir string, pid int, env string) string {
	name, _, _ := stat(dir)
	switch m := rankVariable.FindStringSubmatch(env); {
	case r.cmd.Process.Pid == pid && name == "vapp":
		return "supervisor"
	case m != nil && name == "vapp":
		return "rank " + m[1]
	}
	return name
}

// remember notes which sockets a process has and what it maps in /dev/shm.
func (r *ranked) remember(dir string) {
	fds, _ := os.ReadDir(dir + "/fd")
	for _, fd := range fds {
		if to, _ := os.Readlink(dir + "/fd/" + fd.Name()); strings.HasPrefix(to, "socket:[") && !slices.Contains(r.sockets, to) {
			r.sockets = append(r.sockets, to)
		}
	}
	maps, _ := os.ReadFile(dir + "/maps")
	for line := range strings.Lines(string(maps)) {
		if _, path, ok := strings.Cut(line, "/dev/shm/"); ok {
			path, _, _ = strings.Cut(strings.TrimSpace(path), " ")
			if path = "/dev/shm/" + path; !slices.Contains(r.files, path) {
				r.files = append(r.files, path)
			}
		}
	}
}

// left returns what a server without processes has left after a second: files in TMPDIR and in /dev/shm, and listening sockets. The
// last threads of a process may close them after the first one has ended.
func (r *ranked) left() []string {
	for at := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if out := r.leftNow(); len(out) == 0 || time.Since(at) > time.Second {
			return out
		}
	}
}

func (r *ranked) leftNow() []string {
	var out []string
	entries, _ := os.ReadDir(r.tmp)
	for _, e := range entries {
		out = append(out, filepath.Join(r.tmp, e.Name()))
	}
	for _, f := range r.files {
		if _, err := os.Lstat(f); err == nil {
			out = append(out, f)
		}
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, _ := os.ReadFile(table)
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" && slices.Contains(r.sockets, "socket:["+f[9]+"]") {
				out = append(out, "listening "+f[1])
			}
		}
	}
	return out
}
