package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// limit is the maximum time of one start of a tool.
const limit = 10 * time.Minute

// command is a tool to run.
type command struct {
	path string
	args []string
	env  []string // in addition to this process's environment
}

// outcome holds the output and the resource use of a tool.
type outcome struct {
	command  []string
	out, err []byte
	seconds  float64
	cpu      time.Duration
	peak     int64   // maximum resident bytes
	foreign  float64 // share of the machine's CPU time that other processes used
}

// reason returns the last line of a tool's standard error.
func (r outcome) reason() string {
	lines := strings.Split(strings.TrimSpace(string(r.err)), "\n")
	return lines[len(lines)-1]
}

func execute(ctx context.Context, path string, args ...string) (outcome, error) {
	return command{path: path, args: args}.run(ctx)
}

func (c command) run(ctx context.Context) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.path, c.args...)
	cmd.Env = append(os.Environ(), c.env...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	before, start := machineTime(), time.Now()
	err := cmd.Run()
	r := outcome{command: append(append([]string{}, c.env...), append([]string{c.path}, c.args...)...), out: out.Bytes(), err: complaint.Bytes(), seconds: time.Since(start).Seconds()}
	if cmd.ProcessState != nil {
		if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			r.peak = u.Maxrss << 10
		}
		r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		r.foreign = before.others(machineTime(), r.cpu)
	}
	if err != nil {
		return r, fmt.Errorf("%s: %w: %s", filepath.Base(c.path), err, r.reason())
	}
	return r, nil
}

// threads returns the number of threads of every side.
func threads() string { return strconv.Itoa(runtime.NumCPU()) }

// cpuTime is the time of all processors since boot, in ticks.
type cpuTime struct{ busy, all float64 }

// tick is the unit of /proc/stat: a hundredth of a second on Linux.
const tick = 10 * time.Millisecond

// machineTime returns the times in /proc/stat; stolen time counts as busy.
func machineTime() cpuTime {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return cpuTime{}
	}
	return parseStat(data)
}

// parseStat parses the line of all processors: user, nice, system, idle, iowait, irq,
// softirq, steal.
func parseStat(data []byte) cpuTime {
	line, _, _ := bytes.Cut(data, []byte{'\n'})
	fields := strings.Fields(string(line))
	var t cpuTime
	if len(fields) < 9 || fields[0] != "cpu" {
		return t
	}
	for i, f := range fields[1:9] {
		n, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return cpuTime{}
		}
		t.all += n
		if i != 3 && i != 4 {
			t.busy += n
		}
	}
	return t
}

// others returns the share of CPU time between two samples that other processes used.
func (a cpuTime) others(b cpuTime, mine time.Duration) float64 {
	if b.all <= a.all {
		return 0
	}
	return max(0, b.busy-a.busy-float64(mine)/float64(tick)) / (b.all - a.all)
}
