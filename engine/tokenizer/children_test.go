//go:build cgo && linux

package tokenizer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childModes maps an argument of this test binary to what the process then does.
var childModes = map[string]func(){
	"-die-by-kill": func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL); select {} },
	"-die-by-segv": func() { fmt.Println(); _ = syscall.Kill(os.Getpid(), syscall.SIGSEGV); select {} },
	"-hang":        func() { _, _ = os.NewFile(3, "life").Write([]byte{1}); time.Sleep(time.Hour) },
	"-heap-grows": func() {
		serveAfter(func() {
			arena, err := syscall.Mmap(-1, 0, heapArena, syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
			if err == nil {
				err = syscall.Munmap(arena) // the real heap may need it
			}
			if err != nil {
				panic(err)
			}
		})
	},
	"-threads-start": func() {
		serveAfter(func() {
			before := dataBytes()
			startThreads(spareThreads / 2)
			if grown := dataBytes() - before; grown > 6<<20 { // the Go heap grows by 4 MiB
				panic(fmt.Sprintf("threads took %d bytes of the limit", grown))
			}
		})
	},
	"-replaced": func() {
		exe, err := os.Executable()
		if err == nil {
			err = os.Remove(exe)
		}
		text := ""
		if err == nil {
			text, err = RenderSandboxed(context.Background(), Sandbox{Exe: exe, Args: []string{sandboxArg}}, "still here", map[string]any{})
		}
		fmt.Println(text, err)
		os.Exit(0)
	},
	"-parent": func() {
		exe, _ := os.Executable()
		s := Sandbox{Exe: exe, Args: []string{"-hang"}, Time: time.Hour, start: func(c *exec.Cmd) error {
			c.ExtraFiles = []*os.File{os.NewFile(3, "life")}
			return c.Run()
		}}
		_, err := RenderSandboxed(context.Background(), s, "x", map[string]any{})
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	},
}

// serveAfter serves one call as a child, and calls f when the limits are set.
func serveAfter(f func()) {
	call, in := io.Pipe()
	out, reply := io.Pipe()
	go func() { _ = reply.CloseWithError(ServeSandbox(call, reply)) }()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		panic(err)
	}
	f()
	go func() {
		_, err := io.Copy(in, os.Stdin)
		_ = in.CloseWithError(err)
	}()
	fmt.Println()
	if _, err := io.Copy(os.Stdout, out); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// dataBytes returns this process's memory as its limit counts it.
func dataBytes() int64 {
	statm, err := os.ReadFile("/proc/self/statm")
	var pages [6]int64
	if err == nil {
		_, err = fmt.Sscan(string(statm), &pages[0], &pages[1], &pages[2], &pages[3], &pages[4], &pages[5])
	}
	if err != nil {
		panic(err)
	}
	return pages[5] * int64(os.Getpagesize())
}

func kindOf(err error) Kind {
	var t *TemplateError
	var e *Error
	switch {
	case errors.As(err, &t):
		return t.Kind
	case errors.As(err, &e):
		return e.Kind
	}
	return 0
}

// TestChildCannotRun checks that a transient failure to run a child is retried once and then
// reported as KindUnavailable, for templates and grammars.
func TestChildCannotRun(t *testing.T) {
	emfile := &os.SyscallError{Syscall: "pipe2", Err: syscall.EMFILE}
	args := func(arg string) func(*exec.Cmd) error {
		return func(c *exec.Cmd) error { c.Args[1] = arg; return c.Run() }
	}
	for name, c := range map[string]struct {
		first, second func(*exec.Cmd) error // results of the first and second start
		kind          Kind
		starts        int
	}{
		"no files":             {func(*exec.Cmd) error { return emfile }, func(*exec.Cmd) error { return emfile }, KindUnavailable, 2},
		"no files, then some":  {func(*exec.Cmd) error { return emfile }, (*exec.Cmd).Run, 0, 2},
		"killed":               {args("-die-by-kill"), args("-die-by-kill"), KindUnavailable, 2},
		"killed once":          {args("-die-by-kill"), (*exec.Cmd).Run, 0, 2},
		"no program":           {func(*exec.Cmd) error { return &os.PathError{Op: "fork/exec", Path: "/x", Err: syscall.ENOENT} }, nil, KindSandbox, 1},
		"its stack overflowed": {args("-die-by-segv"), args("-die-by-segv"), KindMemory, 2}, // the small child, the large one
	} {
		for use, do := range map[string]func(Sandbox) error{
			"template": func(s Sandbox) error {
				_, err := RenderSandboxed(t.Context(), s, "x", map[string]any{})
				return err
			},
			"grammar": func(s Sandbox) error {
				leave, _, err := TryGrammar(t.Context(), s, GrammarSpec{GrammarRegex, "a"}, nil, 1, func() bool { return false })
				if err == nil {
					leave()
				}
				return err
			},
		} {
			t.Run(name+", "+use, func(t *testing.T) {
				s, starts := testSandbox(t), 0
				s.start = func(cmd *exec.Cmd) error {
					if starts++; starts == 1 {
						return c.first(cmd)
					}
					return c.second(cmd)
				}
				want := c.kind
				if want == KindMemory && use == "grammar" {
					want = KindGrammar
				}
				if err := do(s); kindOf(err) != want || (err == nil) != (want == 0) || starts != c.starts {
					t.Errorf("after %d starts: kind %d, %v", starts, kindOf(err), err)
				}
				if !s.Children.Idle() {
					t.Error("it keeps its place")
				}
			})
		}
	}
}

// TestChildGrows checks that after a child has set its limits the Go heap may grow by an arena, and
// that the Go runtime needs no memory for new threads.
func TestChildGrows(t *testing.T) {
	for _, mode := range []string{"-heap-grows", "-threads-start"} {
		t.Run(mode[1:], func(t *testing.T) {
			s := testSandbox(t)
			s.Args = []string{mode}
			starts := 0
			s.start = func(c *exec.Cmd) error { starts++; return c.Run() }
			if text, err := RenderSandboxed(t.Context(), s, "x", map[string]any{}); text != "x" || err != nil || starts != 1 {
				t.Errorf("after %d starts: %q, %v", starts, text, err)
			}
		})
	}
}

// TestLargeWork checks that a job that exceeds the small child's limits is started again in the
// large one.
func TestLargeWork(t *testing.T) {
	megabytes := "{% set ns = namespace(s='x' * 500) %}{% for i in range(15) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s|length }}"
	forever := "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}"
	for name, c := range map[string]struct {
		source, text string
		kind         Kind
		change       func(*Sandbox)
	}{
		"memory": {megabytes, "16384000", 0, nil},
		"time":   {forever, "", KindTime, func(s *Sandbox) { s.Time, s.Limits.Steps = time.Second, 1<<40 }},
	} {
		t.Run(name, func(t *testing.T) {
			s, starts := testSandbox(t), 0
			s.start = func(c *exec.Cmd) error { starts++; return c.Run() }
			if c.change != nil {
				c.change(&s)
			}
			text, err := RenderSandboxed(t.Context(), s, c.source, map[string]any{})
			if text != c.text || kindOf(err) != c.kind || starts != 2 {
				t.Errorf("after %d starts: %q, %v", starts, text, err)
			}
		})
	}
}

// TestSmallPassesLarge checks that small jobs do not wait for large ones.
func TestSmallPassesLarge(t *testing.T) {
	s := testSandbox(t)
	begun, end := make(chan struct{}), make(chan struct{})
	s.start = func(c *exec.Cmd) error {
		in, err := io.ReadAll(c.Stdin)
		if err == nil && len(in) > smallCost {
			begun <- struct{}{}
			<-end
		}
		_, err = io.WriteString(c.Stdout, `{"text":"done"}`)
		return err
	}
	done := make(chan error)
	for range 3 {
		go func() {
			_, err := RenderSandboxed(t.Context(), s, strings.Repeat(" ", smallCost), map[string]any{})
			done <- err
		}()
	}
	<-begun
	for range 5 {
		if _, err := RenderSandboxed(t.Context(), s, "x", map[string]any{}); err != nil {
			t.Error(err)
		}
	}
	close(end)
	for i := range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
		if i < 2 {
			<-begun
		}
	}
}

// TestChildrenBusy checks that a full queue gives KindBusy.
func TestChildrenBusy(t *testing.T) {
	s := testSandbox(t)
	leave, err := s.Children.small.Enter(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan error)
	for range maxWaiting + 1 {
		go func() {
			_, err := ContentFormatSandboxed(ctx, s, "x")
			results <- err
		}()
	}
	if err := <-results; kindOf(err) != KindBusy {
		t.Errorf("got %v, want KindBusy", err)
	}
	cancel()
	for range maxWaiting {
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if leave(); !s.Children.Idle() {
		t.Error("a place is lost")
	}
}

// TestChildMemory checks that a child takes no more memory than the plan lists for it.
func TestChildMemory(t *testing.T) {
	const binary = 64 << 20 // resident pages of the program, shared with the parent
	_, large := ChildBytes()
	bombs := map[string]GrammarSpec{
		"memory": {GrammarRegex, strings.Repeat("a?", 20000) + strings.Repeat("a", 20000)},
		"stack":  {GrammarLark, chainOfRules(26000)},
	}
	for name, bomb := range bombs {
		t.Run(name, func(t *testing.T) {
			s := testSandbox(t)
			var most int64
			s.start = func(c *exec.Cmd) error {
				err := c.Run()
				most = max(most, c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss<<10)
				return err
			}
			_, _, err := TryGrammar(t.Context(), s, bomb, nil, len(bomb.Source)+smallCost, func() bool { return false })
			t.Logf("%d MiB, %v", most>>20, err)
			if kindOf(err) != KindGrammar || !strings.Contains(err.Error(), "to compile; make it smaller") {
				t.Errorf("got %v, want KindGrammar, to compile; make it smaller", err)
			}
			var own syscall.Rusage // a process counts its memory from before exec too
			if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
				t.Fatal(err)
			}
			if most > max(large+binary, own.Maxrss<<10) {
				t.Errorf("it took %d MiB, the plan has %d", most>>20, large>>20)
			}
		})
	}
}

func chainOfRules(n int) string {
	var b strings.Builder
	b.WriteString("start: r0\n")
	name := func(i int) string { return "r" + strconv.FormatInt(int64(i), 36) }
	for i := range n {
		b.WriteString(name(i) + ":" + name(i+1) + "\n")
	}
	b.WriteString(name(n) + ":\"a\"\n")
	return b.String()
}

// TestChildOfDeletedProgram checks that a server whose binary was deleted, as in an upgrade, still
// starts children.
func TestChildOfDeletedProgram(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, b, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program, "-replaced").CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != "still here <nil>" {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestChildDiesWithParent checks that a child does not outlive its parent.
func TestChildDiesWithParent(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(exe, "-parent")
	parent.ExtraFiles = []*os.File{w}
	if err := errors.Join(parent.Start(), w.Close(), r.SetReadDeadline(time.Now().Add(time.Minute))); err != nil {
		t.Fatal(err)
	}
	life := make([]byte, 1)
	if _, err := io.ReadFull(r, life); err != nil {
		t.Fatal("the child does not run:", err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	if _, err := r.Read(life); err != io.EOF {
		t.Errorf("the child lives on: %v", err)
	}
}
