package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"vapp.dev/tests/peer/figures"
)

// Slots of llama-server and tokens per slot: a prompt of 128, a reply of 64, and the tokens
// that its tokenizer adds.
const slots, slotTokens = 16, 208

// serveVapp measures vapp as a server.
func (b bench) serveVapp(ctx context.Context, p *figures.Part, s side) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	data, err := os.ReadFile(s.file)
	if err != nil {
		return err
	}
	path := strings.TrimSuffix(s.file, ".cue") + "-served.cue"
	if err := os.WriteFile(path, bytes.Replace(data, []byte("port: 0"), fmt.Appendf(nil, "port: %d", port), 1), 0o644); err != nil {
		return err
	}
	return b.serve(ctx, p, s, address{port, "/readyz"}, command{path: b.vapp, args: []string{"up", path}})
}

// serveLlama measures llama-server with its defaults and one slot per stream.
func (b bench) serveLlama(ctx context.Context, p *figures.Part, s side) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	return b.serve(ctx, p, s, address{port, "/health"}, command{path: filepath.Join(b.dir, "llama.cpp", "bin", "llama-server"), args: []string{
		"-m", b.model(p.Name), "--alias", "peer", "--host", "127.0.0.1", "--port", strconv.Itoa(port), "-t", threads(),
		"-np", strconv.Itoa(slots), "-c", strconv.Itoa(slots * slotTokens),
	}})
}

// address is the address of a server of this run.
type address struct {
	port  int
	ready string // the route that answers 200 once the model is loaded
}

func (a address) url(path string) string { return fmt.Sprintf("http://127.0.0.1:%d%s", a.port, path) }

// freePort returns a port that is not in use.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// serve starts a server, runs vapp bench serve with 16 concurrent requests, and stops it.
func (b bench) serve(ctx context.Context, p *figures.Part, s side, at address, c command) error {
	server, err := start(c)
	if err != nil {
		return err
	}
	err = server.ready(ctx, at)
	if err == nil {
		err = b.drive(ctx, p, s, at, server)
	}
	if complaint := server.stop(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(c.path), err, outcome{err: complaint}.reason())
	}
	return nil
}

// drive adds the run of a server that is ready.
func (b bench) drive(ctx context.Context, p *figures.Part, s side, at address, server *server) error {
	dir, file := filepath.Join(b.dir, "results"), "served.tmp"
	defer os.Remove(filepath.Join(dir, file))
	before, used := machineTime(), server.time()
	r, err := execute(ctx, b.vapp, "bench", "serve", "--base-url", at.url(""), "--model", "peer",
		"--tokenizer", b.model(p.Name), "--dataset-name", "random", "--random-input-len", "128", "--random-output-len", "64",
		"--num-prompts", "16", "--max-concurrency", "16", "--disable-tqdm", "--save-result", "--result-dir", dir, "--result-filename", file)
	if err != nil {
		return err
	}
	saved, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return err
	}
	v, err := figures.ReadServe(saved)
	if err != nil {
		return err
	}
	v[figures.ServerPeak] = server.peak()
	r.foreign = before.others(machineTime(), r.cpu+server.time()-used)
	r.command = append([]string{server.cmd.Path}, server.cmd.Args[1:]...)
	p.Runs = append(p.Runs, b.result(s.name, r, v))
	return nil
}
