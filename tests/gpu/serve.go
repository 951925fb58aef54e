package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// port is the port in the bundle's profiles; serve replaces it by a free one.
const port = "port: 18173"

// serve starts a server, measures it with vapp bench serve, and operates it. It is run by a part of the agenda.
func serve(args []string) int {
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	prompts := f.Int("prompts", 256, "requests")
	input := f.Int("input", 512, "tokens of a prompt")
	output := f.Int("output", 128, "tokens to generate")
	streams := f.Int("streams", 64, "requests at once")
	long := f.Int("long", 0, "tokens of one more prompt, sent beside the others")
	ops := f.Bool("ops", false, "then reload the profile, put the model to sleep and wake it up")
	if err := f.Parse(args); err != nil || f.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "serve: want a profile")
		return 2
	}
	l := load{*prompts, *input, *output, *streams, *long, *ops}
	if err := l.run(f.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		return 1
	}
	return 0
}

// load is the workload of the server.
type load struct {
	prompts, input, output, streams, long int
	ops                                   bool
}

// run prints the figures of the benchmark.
func (l load) run(profile string) (err error) {
	dir, err := os.MkdirTemp("", "vapp-gpu-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	free, err := freePort()
	if err != nil {
		return err
	}
	vapp, err := filepath.Abs("vapp")
	if err != nil {
		return err
	}
	own := filepath.Join(filepath.Dir(profile), fmt.Sprintf("served-%d.cue", os.Getpid()))
	text, err := os.ReadFile(profile)
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), port) {
		return fmt.Errorf("%s does not say %q", profile, port)
	}
	if err := os.WriteFile(own, []byte(strings.Replace(string(text), port, "port: "+strconv.Itoa(free), 1)), 0o644); err != nil {
		return err
	}
	defer os.Remove(own)
	server := exec.Command(vapp, "up", own)
	server.Stdout, server.Stderr = os.Stderr, os.Stderr
	if err := server.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	defer func() { err = errors.Join(err, end(server, ended)) }()
	url := "http://127.0.0.1:" + strconv.Itoa(free)
	if err := ready(url, ended); err != nil {
		return err
	}
	bench := exec.Command(vapp, "bench", "serve", "--base-url", url, "--dataset-name", "random",
		"--random-input-len", strconv.Itoa(l.input), "--random-output-len", strconv.Itoa(l.output),
		"--num-prompts", strconv.Itoa(l.prompts), "--max-concurrency", strconv.Itoa(l.streams),
		"--save-result", "--result-dir", dir, "--result-filename", "result.json", "--disable-tqdm")
	bench.Stdout, bench.Stderr = os.Stderr, os.Stderr
	if err := bench.Start(); err != nil {
		return err
	}
	more := map[string]any{}
	var besides error
	if l.long > 0 {
		var took time.Duration
		if took, besides = ask(url, l.long, 16); besides == nil {
			more["long_prompt_tokens"], more["long_prompt_seconds"] = l.long, took.Seconds()
		}
	}
	if err := errors.Join(bench.Wait(), besides); err != nil {
		return fmt.Errorf("vapp bench serve: %w", err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "result.json"))
	if err != nil {
		return err
	}
	var figures map[string]any
	if err := json.Unmarshal(raw, &figures); err != nil {
		return err
	}
	if l.ops {
		err = operate(url, own, more)
	}
	maps.Copy(figures, more)
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(figures))
}

// ask sends a prompt of so many tokens and returns when its answer of at most so many is there.
func ask(url string, prompt, answer int) (time.Duration, error) {
	ids := make([]int, prompt)
	for i := range ids {
		ids[i] = 5 + i*i%200
	}
	body, err := json.Marshal(map[string]any{"prompt": ids, "max_tokens": answer, "ignore_eos": true, "temperature": 0})
	if err != nil {
		return 0, err
	}
	return post(url+"/v1/completions", body)
}

// post returns how long a request takes; another status than 200 is an error.
func post(url string, body []byte) (time.Duration, error) {
	start := time.Now()
	r, err := http.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	said, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("POST %s: %s: %s", url, r.Status, said)
	}
	return time.Since(start), err
}

// name is what the profiles call the served model first; operate adds another.
const name, another = "servedModelName: [", "servedModelName: [\"another\", "

// operate does to a running server what its operators do, and adds the seconds of each: a change of the profile, sleep, and
// waking up, after which an answer must come.
func operate(url, profile string, seconds map[string]any) error {
	text, err := os.ReadFile(profile)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := os.WriteFile(profile, []byte(strings.Replace(string(text), name, another, 1)), 0o644); err != nil {
		return err
	}
	for renamed := false; !renamed; {
		if time.Since(start) > 20*time.Second {
			return errors.New("the changed profile is not in force after 20 s")
		}
		time.Sleep(20 * time.Millisecond)
		r, err := http.Get(url + "/v1/models")
		if err != nil {
			return err
		}
		said, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return err
		}
		renamed = strings.Contains(string(said), "\"another\"")
	}
	seconds["reload_seconds"] = time.Since(start).Seconds()
	for _, do := range []struct{ key, path string }{{"sleep_seconds", "/sleep?level=1"}, {"wake_up_seconds", "/wake_up"}} {
		took, err := post(url+do.path, nil)
		if err != nil {
			return err
		}
		seconds[do.key] = took.Seconds()
	}
	took, err := ask(url, 8, 2)
	seconds["answer_after_wake_up_seconds"] = took.Seconds()
	return err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// ready waits until the server has loaded its model or has ended.
func ready(url string, ended chan error) error {
	ctx, stop := context.WithTimeout(context.Background(), 4*time.Minute)
	defer stop()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			ended <- err
			return errors.Join(errors.New("the server ended before it was ready"), err)
		case <-ctx.Done():
			return errors.New("the server is not ready after 4 minutes")
		case <-tick.C:
		}
		r, err := http.Get(url + "/readyz")
		if err != nil {
			continue
		}
		r.Body.Close()
		if r.StatusCode == http.StatusOK {
			return nil
		}
	}
}

// end stops the server with drain and returns an error if it does not end cleanly.
func end(server *exec.Cmd, ended chan error) error {
	if err := server.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(30 * time.Second):
		return errors.Join(errors.New("the server did not end within 30 s"), server.Process.Kill())
	}
}
