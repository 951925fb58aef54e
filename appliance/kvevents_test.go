package appliance

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/go-zeromq/zmq4"
	"github.com/vmihailenco/msgpack/v5"

	"vapp.dev/appliance/kvevents"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/kv"
	"vapp.dev/schema"
)

// TestKVEvents reads the events of a prompt over both sockets of a server, and computes its hash.
func TestKVEvents(t *testing.T) {
	s := start(t, `serve: kvEvents: {endpoint: "tcp://*:0", replayEndpoint: "tcp://127.0.0.1:0", topic: "kv@127.0.0.1@toy", hashSeed: "42"}`)
	prompt := make([]string, 20)
	tokens := make([]int32, 20)
	for i := range prompt {
		tokens[i] = int32(3 + i)
		prompt[i] = fmt.Sprint(tokens[i])
	}
	if code, text := s.post(t, "/v1/completions", `{"model":"toy","prompt":[`+strings.Join(prompt, ",")+`],"max_tokens":1,"cache_salt":"tenant"}`); code != 200 {
		t.Fatal(code, text)
	}
	l, err := kv.NewLayout([]kv.Spec{{Name: "k", Kind: kv.Full, PageBytes: 1 << 20, BlockSize: 16}})
	if err != nil {
		t.Fatal(err)
	}
	pool := kv.NewPool(l, 2, true)
	pool.Record("42")
	tab := pool.NewTable("")
	tab.SetOrigin(kv.Origin{Salt: "tenant"})
	pool.Extend(tab, 0, 16, 16)
	pool.Seal(tab, tokens, 16)
	hash := kvevents.External(pool.Changes()[1].Hash)

	client := zmq4.NewDealer(context.Background())
	defer client.Close()
	if err := client.Dial("tcp://" + s.events.ReplayAddr()); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, "two batches", func() bool { return s.metricValue(t, "vapp_kv_events_batches_total") == "2" })
	if err := client.SendMulti(zmq4.NewMsgFrom(nil, make([]byte, 8))); err != nil {
		t.Fatal(err)
	}
	for seq, want := range []string{
		"[[AllBlocksCleared]]",
		fmt.Sprintf("[[BlockStored [%d] <nil> %v 16 <nil> GPU <nil> [[tenant]] 0 full_attention <nil>]]", hash, tokens[:16]),
	} {
		m, err := client.Recv()
		if err != nil || binary.BigEndian.Uint64(m.Frames[1]) != uint64(seq) {
			t.Fatal(m, err)
		}
		var batch []any
		if err := msgpack.Unmarshal(m.Frames[2], &batch); err != nil || fmt.Sprint(batch[1]) != want || fmt.Sprint(batch[2]) != "0" {
			t.Errorf("batch %d: %v, %v, want %s", seq, batch, err, want)
		}
	}
	s.eventually(t, "the replay is counted", func() bool { return s.metricValue(t, "vapp_kv_events_replays_total") == "1" })
}

// TestKVEventsRefused: a server whose events cannot be published says so at the field, and leaves no
// socket open.
func TestKVEventsRefused(t *testing.T) {
	used, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	_, port, _ := net.SplitHostPort(used.Addr().String())
	toy := toyModel(t)
	for more, want := range map[string]string{
		`serve: kvEvents: endpoint: "tcp://*:` + port + `"`:                             "serve.kvEvents.endpoint: tcp://*:" + port + ": cannot listen: the port is in use",
		`serve: kvEvents: {endpoint: "tcp://*:0", replayEndpoint: "tcp://192.0.2.1:1"}`: "serve.kvEvents.replayEndpoint: tcp://192.0.2.1:1: cannot listen: the address is not one of this host",
		`serve: kvEvents: {endpoint: "tcp://*:0"}, scheduler: prefixCaching: false`:     "serve.kvEvents: there is no prefix cache",
		`serve: kvEvents: {endpoint: "tcp://router:99999"}`:                             "serve.kvEvents.endpoint: tcp://router:99999: want a host and a port",
	} {
		file := t.TempDir() + "/p.cue"
		writeFile(t, file, profileText(toy, more))
		a, err := New(Config{Profile: file, Machine: Machine{Backends: []backend.Opener{ref.Opener{}}}, Log: io.Discard})
		if err == nil {
			t.Errorf("%s: a server at %v", more, a.Addr())
			a.socket.socket.Close()
			a.events.Close()
		} else if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want …%s", more, err, want)
		}
	}
}

// TestKVEventsArePlanned: the plan has the memory that events may take.
func TestKVEventsArePlanned(t *testing.T) {
	toy := toyModel(t)
	heap := func(more string) int64 {
		m := Machine{Backends: []backend.Opener{ref.Opener{}}, Text: []byte(profileText(toy, more))}
		p, err := Prepare("p.cue", m)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		return p.Plan.GoMemoryLimit
	}
	if got := heap("serve: kvEvents: {}") - heap(""); got != kvevents.MaxBytes {
		t.Errorf("KV events are planned with %v, and may take %v", schema.Bytes(got), schema.Bytes(kvevents.MaxBytes))
	}
}
