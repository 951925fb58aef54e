package main

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/appliance/launcher"
	"vapp.dev/engine/backend/host"
	"vapp.dev/schema"
	"vapp.dev/tools/bench/enginebench"
)

// rankFlags are the flags that say which rank this process is, for hosts without a launcher.
func rankFlags(c *cobra.Command) {
	f := c.Flags()
	f.Int("nodes", 0, "how many ranks there are, one a host, where no launcher says it (vLLM: --nnodes)")
	f.Int("node-rank", 0, "which of them this is, from 0")
	f.String("leader", "", "`HOST:PORT` at which rank 0 listens for the others (vLLM: --master-addr, --master-port)")
}

// ownControl is the variable that names the socket by which the process that started the ranks passes its signals to rank 0.
const ownControl = "VAPP_RANKS_CONTROL"

// ranked makes this process a rank of a profile that has several. It returns handled if the command has run in other processes,
// which this one has started, or if this process was a rank other than 0; err is then the command's. follow runs a rank
// other than 0, whose signals go to rank 0; but drainSignal, which rank 0 gets too. On rank 0 the caller sets m.Ranks.Drain.
func ranked(c *cobra.Command, p *schema.Profile, m *appliance.Machine, follow func(appliance.FollowConfig) error) (handled bool, err error) {
	place, err := findPlace(c, p)
	if err != nil {
		return false, err
	}
	return rankedAs(place, p, m, follow)
}

// rankedAs is ranked for a process whose place is known.
func rankedAs(place launcher.Place, p *schema.Profile, m *appliance.Machine, follow func(appliance.FollowConfig) error) (handled bool, err error) {
	world := p.Parallel.Ranks()
	switch {
	case world == 1:
		return false, nil
	case place.World == 1:
		on, err := m.BackendOf(p)
		if err != nil {
			return false, err
		}
		return true, startRanks(p, on, world)
	case !place.MPI() && place.By != launcher.Own:
		if on, err := m.BackendOf(p); err != nil || on != "cuda" {
			return true, errors.Join(err, startGroup(place, p))
		}
	}
	m.Ranks = appliance.RankSetup{
		Place: place, Fabrics: fabrics(), Version: buildVersion(), Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Bind: host.Bind,
	}
	if place.Rank == 0 {
		return false, followControl()
	}
	signal.Ignore(drainSignal, hangup) // rank 0 drains and reloads
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	return true, follow(appliance.FollowConfig{Profile: p, Machine: *m, Log: os.Stderr, Signals: signals})
}

// rankedAt is ranked for the profile at path.
func rankedAt(c *cobra.Command, path string, m *appliance.Machine) (handled bool, err error) {
	p, err := m.Load(path)
	if err != nil {
		return false, err
	}
	return ranked(c, p, m, appliance.Follow)
}

// benchRanked is ranked for a run of bench engine. Unless the ranks of the profile are started, the run has one.
func benchRanked(c *cobra.Command, path string, m *appliance.Machine, o enginebench.Options) (handled bool, err error) {
	p, err := m.Load(path)
	if err != nil {
		return false, err
	}
	place, err := findPlace(c, p)
	if err != nil {
		return false, err
	}
	if on, err := m.BackendOf(p); err != nil || place.World == 1 && on != "cuda" && p.CPU.Ranks != p.Parallel.Ranks() {
		return false, err
	}
	return rankedAs(place, p, m, func(f appliance.FollowConfig) error { return enginebench.Follow(path, o, f) })
}

// findPlace returns this process's place among the ranks of a profile. The error is of the command's usage and names the host.
func findPlace(c *cobra.Command, p *schema.Profile) (launcher.Place, error) {
	var f launcher.Flags
	if c.Flags().Lookup("nodes") != nil {
		f.Nodes, _ = c.Flags().GetInt("nodes")
		f.NodeRank, _ = c.Flags().GetInt("node-rank")
		f.Leader, _ = c.Flags().GetString("leader")
	}
	place, err := launcher.Find(f, os.Getenv, p.Parallel.Ranks())
	if err != nil {
		host, _ := os.Hostname()
		return place, &usageError{fmt.Errorf("on %s: %w", host, err), c.CommandPath()}
	}
	return place, nil
}

// startRanks runs this command once for each rank, on this host, and passes signals to rank 0. Ranks on CPUs are started by
// mpirun.
func startRanks(p *schema.Profile, backend string, world int) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	s := &supervisor{world: world, command: append([]string{exe}, os.Args[1:]...)}
	if backend == "cuda" {
		return s.run(s.onGPUs)
	}
	if p.CPU.Ranks != world {
		return p.Reject("parallel", "there are %d ranks and this host starts cpu.ranks: %d of them: set cpu.ranks to %d to run all here, or start them with mpirun, Slurm or --nodes %d --node-rank N --leader HOST:PORT", world, p.CPU.Ranks, world, world)
	}
	return s.run(s.onCPUs)
}

// supervisor has the ranks of one host as child processes.
type supervisor struct {
	world    int
	command  []string
	children []*exec.Cmd
	control  net.Conn      // to rank 0; nil until it connects
	drained  chan struct{} // gets a value when another host asks for the end; nil: there is none
}

// run starts the ranks, and returns when all have ended. One that fails ends the others.
func (s *supervisor) run(start func(control string) error) error {
	dir, err := ranksDir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ln, err := net.Listen("unix", filepath.Join(dir, "control"))
	if err != nil {
		return err
	}
	defer ln.Close()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, hangup, drainSignal)
	defer signal.Stop(signals)
	if err := start(ln.Addr().String()); err != nil {
		s.kill()
		return err
	}
	connected := make(chan net.Conn, 1)
	go func() {
		if c, err := ln.Accept(); err == nil {
			connected <- c
		}
	}()
	ended := make(chan error, len(s.children))
	for _, c := range s.children {
		go func() { ended <- c.Wait() }()
	}
	var waiting []os.Signal // for rank 0 to connect
	var first error
	for left := len(s.children); left > 0; {
		select {
		case sig := <-signals:
			if waiting = append(waiting, sig); s.control == nil && len(waiting) > 1 {
				s.kill()
			}
		case <-s.drained:
			waiting = append(waiting, drainSignal)
		case s.control = <-connected:
		case err := <-ended:
			if left--; err != nil && first == nil {
				first = err
				time.AfterFunc(ranksGrace, s.kill)
			}
		}
		for ; s.control != nil && len(waiting) > 0; waiting = waiting[1:] {
			fmt.Fprintf(s.control, "%d\n", waiting[0].(syscall.Signal))
		}
	}
	s.kill()
	var exit *exec.ExitError
	if errors.As(first, &exit) {
		return exitError(max(1, exit.ExitCode()))
	}
	return first
}

// ranksDir makes the directory of everything that ranks have in common: the control socket, and Open MPI's session and shared
// memory. It is in memory where the system has a place for that.
func ranksDir() (string, error) {
	if dir, err := os.MkdirTemp("/dev/shm", "vapp-ranks-"); err == nil {
		return dir, nil
	}
	return os.MkdirTemp("", "vapp-ranks-")
}

// ranksGrace is the time that ranks have to end after one has failed.
const ranksGrace = 3 * time.Second

// kill ends every process of every child's group.
func (s *supervisor) kill() {
	for _, c := range s.children {
		if c.Process != nil {
			killGroup(c.Process.Pid)
		}
	}
}

// start starts one child in a process group of its own, so that a Ctrl-C reaches this process only.
func (s *supervisor) start(name string, args []string, env ...string) error {
	c := exec.Command(name, args...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.Env = append(os.Environ(), env...)
	ownGroup(c)
	s.children = append(s.children, c)
	return c.Start()
}

// onCPUs starts mpirun with all ranks.
func (s *supervisor) onCPUs(control string) error {
	mpirun, args, err := s.mpirun()
	if err != nil {
		return err
	}
	args = append(args, "--oversubscribe")
	// mpirun removes its files by itself, unless it is killed. The names differ between Open MPI 4 and 5.
	env := []string{ownControl + "=" + control}
	for _, v := range []string{"OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_btl_vader_backing_directory", "PRTE_MCA_prte_tmpdir_base", "OMPI_MCA_btl_sm_backing_directory"} {
		env = append(env, v+"="+filepath.Dir(control))
	}
	return s.start(mpirun, append(args, s.command...), env...)
}

// mpirun returns the program and the arguments that ranks on one host and on several have in common.
func (s *supervisor) mpirun() (program string, args []string, err error) {
	if program, err = exec.LookPath("mpirun"); err != nil {
		return "", nil, errors.New("ranks on CPUs are started by Open MPI's mpirun, which is not on the path; install it (Debian: openmpi-bin)")
	}
	args = []string{"-q", "--bind-to", "none", "-n", strconv.Itoa(s.world)}
	if os.Geteuid() == 0 {
		args = append(args, "--allow-run-as-root")
	}
	return program, args, nil
}

// onGPUs starts one process a GPU.
func (s *supervisor) onGPUs(control string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	key := os.Getenv(launcher.OwnKey)
	if key == "" {
		b := make([]byte, 32)
		_, _ = rand.Read(b)
		key = hex.EncodeToString(b)
	}
	for rank := range s.world {
		err := s.start(s.command[0], s.command[1:],
			launcher.OwnRank+"="+strconv.Itoa(rank), launcher.OwnWorld+"="+strconv.Itoa(s.world),
			visibleGPUs+"="+gpuOf(os.Getenv(visibleGPUs), rank), launcher.OwnLeader+"=127.0.0.1:"+port, launcher.OwnKey+"="+key, ownControl+"="+control)
		if err != nil {
			return err
		}
	}
	return nil
}

// freePort returns a port of the loopback address that nothing listens on.
func freePort() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	return port, err
}

// followControl gives rank 0 the signals of the process that started the ranks. When that process is gone, rank 0 aborts.
func followControl() error {
	path := os.Getenv(ownControl)
	if path == "" {
		return nil
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		_ = os.RemoveAll(filepath.Dir(path)) // that process was killed, and has left it
		return fmt.Errorf("the process that started the ranks is gone: %w", err)
	}
	go func() {
		for in := bufio.NewScanner(c); in.Scan(); {
			if n, err := strconv.Atoi(in.Text()); err == nil {
				signalSelf(syscall.Signal(n))
			}
		}
		_ = os.RemoveAll(filepath.Dir(path)) // that process was killed, and has left it
		signalSelf(syscall.SIGTERM)
		time.Sleep(100 * time.Millisecond) // two signals at once are one
		signalSelf(syscall.SIGTERM)
	}()
	return nil
}
