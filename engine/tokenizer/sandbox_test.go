//go:build cgo

package tokenizer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

const sandboxArg = "-serve-template-sandbox"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == sandboxArg {
		if err := ServeSandbox(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 2 && childModes[os.Args[1]] != nil {
		childModes[os.Args[1]]()
	}
	os.Exit(m.Run())
}

func testSandbox(t *testing.T) Sandbox {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Sandbox{Exe: exe, Args: []string{sandboxArg}, Time: time.Minute, Children: NewChildren()}
}

func TestSandboxRenders(t *testing.T) {
	s := testSandbox(t)
	vars := map[string]any{"messages": []any{map[string]any{"role": "user", "content": "a\x00é🙂"}}}
	source := "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"
	got, err := RenderSandboxed(t.Context(), s, source, vars)
	if want := "user: a\x00é🙂"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	format, err := ContentFormatSandboxed(t.Context(), s, "{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}")
	if err != nil || format != ContentOpenAI {
		t.Errorf("format %q, %v", format, err)
	}
}

func TestSandboxRefuses(t *testing.T) {
	double := "{% set ns = namespace(s='x' * 1000) %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}done"
	nest := "{% set ns = namespace(v=0) %}{% for i in range(90000) %}{% set ns.v = [ns.v] %}{% endfor %}done"
	for name, c := range map[string]struct {
		source string
		kind   Kind
		change func(*Sandbox)
	}{
		"memory":  {double, KindMemory, nil},
		"raised":  {"{{ raise_exception('no ' ~ 'way') }}", KindRaised, nil},
		"syntax":  {"{% if %}", KindTemplate, nil},
		"steps":   {"{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}", KindSteps, func(s *Sandbox) { s.Limits.Steps = 100_000 }},
		"output":  {"{% for i in range(1000) %}0123456789{% endfor %}", KindOutput, func(s *Sandbox) { s.Limits.OutputBytes = 999 }},
		"time":    {"x", KindTime, func(s *Sandbox) { s.Time = time.Nanosecond }},
		"program": {"x", KindSandbox, func(s *Sandbox) { s.Exe = "/nowhere/vapp" }},
		"args":    {"x", KindSandbox, func(s *Sandbox) { s.Args = []string{"-no-such-flag"} }},
	} {
		t.Run(name, func(t *testing.T) {
			s := testSandbox(t)
			if c.change != nil {
				c.change(&s)
			}
			out, err := RenderSandboxed(t.Context(), s, c.source, map[string]any{})
			var e *TemplateError
			if !errors.As(err, &e) || e.Kind != c.kind || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %.40q, %v", out, err)
			}
		})
	}
	if out, err := RenderSandboxed(t.Context(), testSandbox(t), nest, map[string]any{}); err != nil {
		t.Log("deep nesting:", err)
	} else {
		t.Log("deep nesting:", out)
	}
}

func TestSandboxCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := RenderSandboxed(ctx, testSandbox(t), "x", map[string]any{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}
