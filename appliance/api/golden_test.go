package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
	"vapp.dev/internal/goldentest"
)

// state is a fixed State.
type state struct {
	svc   *chat.Service
	phase string
}

func (s *state) Phase() string { return s.phase }
func (s *state) Ready() bool   { return s.svc != nil }
func (s *state) Healthy() bool { return s.svc != nil }

// Enter implements State.
func (s *state) Enter(context.Context) (*chat.Service, func(), error) {
	if s.svc == nil {
		return nil, nil, chat.Errorf(chat.Unavailable, "", "The server is not ready: %s.", s.phase)
	}
	return s.svc, func() {}, nil
}

// testSettings returns common settings.
func testSettings() Settings {
	return Settings{
		MaxBodyBytes: 1 << 20, CORS: CORS{Origins: []string{"*"}, Methods: []string{"*"}, Headers: []string{"*"}},
		Chat: chattest.Settings(),
	}
}

// testServer returns a server of a model with fixed ids and time.
func testServer(m *chattest.Model, set Settings) *Server { return New(testConfig(m), set) }

func testConfig(m *chattest.Model) Config {
	var n atomic.Int64
	return Config{
		State: &state{chattest.Service(m), "ready"}, Version: "0.1.0",
		NewID: func() string { return fmt.Sprintf("id%d", n.Add(1)) },
		Log:   slog.New(slog.DiscardHandler), Now: func() time.Time { return chattest.Now },
		Load: func() (float64, int) { return 0.4, 2 },
	}
}

// knobs maps the lines of a golden's settings to their effects.
var knobs = map[string]func(*Settings, *chattest.Model){
	"embeds":           func(_ *Settings, m *chattest.Model) { m.Pooling = chattest.Embeds() },
	"classifies":       func(_ *Settings, m *chattest.Model) { m.Pooling = chattest.Classifies("bad", "good") },
	"ranks":            func(_ *Settings, m *chattest.Model) { m.Pooling = chattest.Classifies("yes") },
	"pairs":            func(s *Settings, _ *chattest.Model) { s.Chat.ScoreTemplate = true },
	"trust template":   func(s *Settings, _ *chattest.Model) { s.Chat.TrustRequestChatTemplate = true },
	"parts template":   func(s *Settings, _ *chattest.Model) { s.Chat.Template = chattest.Template{Format: "openai"} },
	"no template":      func(s *Settings, _ *chattest.Model) { s.Chat.Template = nil },
	"cached details":   func(s *Settings, m *chattest.Model) { s.Chat.PromptTokensDetails, m.Cached = true, 4 },
	"key":              func(s *Settings, _ *chattest.Model) { s.Keys = []string{"other", "secret"} },
	"small body":       func(s *Settings, _ *chattest.Model) { s.MaxBodyBytes = 16 },
	"request ids":      func(s *Settings, _ *chattest.Model) { s.RequestIDHeaders = true },
	"usage always":     func(s *Settings, _ *chattest.Model) { s.ForceIncludeUsage = true },
	"reasoning twice":  func(s *Settings, _ *chattest.Model) { s.ReasoningContent = true },
	"no tools if none": func(s *Settings, _ *chattest.Model) { s.Chat.ExcludeToolsWhenNone = true },
	"two a minute":     func(s *Settings, _ *chattest.Model) { s.PerKey.RequestsPerMinute = 2 },
	"ten tokens":       func(s *Settings, _ *chattest.Model) { s.PerKey.TokensPerMinute = 10 },
	"one origin": func(s *Settings, _ *chattest.Model) {
		s.CORS.Origins, s.Hosts.Allowed = []string{"https://app.example"}, []string{"example.com"}
	},
	"two adapters": func(s *Settings, m *chattest.Model) {
		m.Adapters = &chattest.Adapters{Slots: 2}
		s.LoadAdapters, s.Chat.Adapter = true, m.Adapters.Has
	},
	"adapter sql": func(s *Settings, m *chattest.Model) {
		m.Adapters = &chattest.Adapters{Slots: 2}
		_ = m.Adapters.LoadAdapter(context.Background(), "sql", "/adapters/sql", false) // of an empty set
		s.LoadAdapters, s.Chat.Adapter = true, m.Adapters.Has
	},
	"fixed adapters": func(s *Settings, m *chattest.Model) {
		m.Adapters = &chattest.Adapters{Slots: 2}
		s.Chat.Adapter = m.Adapters.Has
	},
	"vision": func(s *Settings, _ *chattest.Model) {
		_, seeing := seeing()
		s.Chat.Vision, s.Chat.Template = seeing.Chat.Vision, seeing.Chat.Template
	},
	"overloaded": func(_ *Settings, m *chattest.Model) { m.Refuse = fmt.Errorf("%w: 3 wait", engine.ErrOverloaded) },
	"closed":     func(_ *Settings, m *chattest.Model) { m.Refuse = engine.ErrClosed },
	"dead":       func(_ *Settings, m *chattest.Model) { m.Refuse = engine.ErrDead },
	"hermes": func(s *Settings, _ *chattest.Model) {
		s.Chat.Reasoning, s.Chat.Tools, s.Chat.AutoToolChoice = "qwen3", "hermes", true
	},
	"no auto":    func(s *Settings, _ *chattest.Model) { s.Chat.Tools = "hermes" },
	"harmony":    func(s *Settings, _ *chattest.Model) { s.Chat.Reasoning, s.Chat.Tools = "openai_gptoss", "openai" },
	"auto tools": func(s *Settings, _ *chattest.Model) { s.Chat.AutoToolChoice = true },
	"fixed ids":  func(s *Settings, _ *chattest.Model) { s.Chat.NewCallID = func() string { return "chatcmpl-tool-0" } },
	"stop token": func(_ *Settings, m *chattest.Model) {
		say := m.Say
		m.Say = func(r engine.Request, i int) chattest.Script {
			s := say(r, i)
			s.StopToken = chattest.Turn
			return s
		}
	},
	"breaks": func(_ *Settings, m *chattest.Model) {
		say := m.Say
		m.Say = func(r engine.Request, i int) chattest.Script {
			s := say(r, i)
			s.Finish, s.Err = engine.FinishError, errors.New("the logits are NaN")
			return s
		}
	},
	"aborts": func(_ *Settings, m *chattest.Model) {
		say := m.Say
		m.Say = func(r engine.Request, i int) chattest.Script {
			s := say(r, i)
			s.Finish = engine.FinishAbort
			return s
		}
	},
}

// TestGolden sends the requests of testdata. Each file has the model's text ("say", one
// line for each choice), settings, and pairs of request and reply.
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
			runGolden(t, file, a)
		})
	}
}

func runGolden(t *testing.T, file string, a *txtar.Archive) {
	m, set := &chattest.Model{}, testSettings()
	said := []string{"Hello!"}
	m.Say = func(_ engine.Request, i int) chattest.Script { return chattest.Script{Text: said[i%len(said)]} }
	var out []txtar.File
	var server *Server
	stored := false
	for i := 0; i < len(a.Files); i++ {
		f := a.Files[i]
		out = append(out, f)
		switch {
		case f.Name == "say":
			said = strings.Split(strings.TrimSuffix(string(f.Data), "\n"), "\n")
		case f.Name == "settings":
			for _, line := range strings.Fields(strings.ReplaceAll(string(f.Data), " ", "_")) {
				if line == "stored" {
					stored = true
					continue
				}
				knob := knobs[strings.ReplaceAll(line, "_", " ")]
				if knob == nil {
					t.Fatalf("no setting %q", line)
				}
				knob(&set, m)
			}
		case strings.HasPrefix(f.Name, "request"):
			if server == nil {
				if server = testServer(m, set); stored {
					server, _ = storingServer(t, m, set)
				}
			}
			reply := txtar.File{Name: strings.Replace(f.Name, "request", "reply", 1), Data: send(t, server, f.Data)}
			if i+1 < len(a.Files) && a.Files[i+1].Name == reply.Name {
				i++
			}
			out = append(out, reply)
		}
	}
	goldentest.CompareArchive(t, file, &txtar.Archive{Comment: a.Comment, Files: out})
}

// send sends a request of the form "METHOD path", headers, an empty line and a body. A
// body without headers is JSON.
func send(t *testing.T, s *Server, text []byte) []byte {
	head, body, _ := strings.Cut(string(text), "\n\n")
	lines := strings.Split(strings.TrimSpace(head), "\n")
	method, path, _ := strings.Cut(lines[0], " ")
	r := httptest.NewRequest(method, path, strings.NewReader(strings.TrimSuffix(body, "\n")))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, l := range lines[1:] {
		name, value, _ := strings.Cut(l, ":")
		value = strings.TrimSpace(value)
		if r.Header.Set(name, value); value == "" {
			r.Header.Del(name)
		}
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d %s\n", w.Code, http.StatusText(w.Code))
	names := []string{}
	for name := range w.Header() {
		if name != "Content-Length" {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for _, n := range names {
		fmt.Fprintf(&b, "%s: %s\n", n, strings.Join(w.Header()[n], ", "))
	}
	b.WriteByte('\n')
	in := bufio.NewReader(w.Body)
	for {
		line, err := in.ReadString('\n')
		b.WriteString(line)
		if err != nil {
			if err != io.EOF {
				t.Fatal(err)
			}
			break
		}
	}
	return append(bytes.TrimRight(b.Bytes(), "\n"), '\n')
}
