package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/appliance/launcher"
	"vapp.dev/appliance/orted"
	"vapp.dev/schema"
)

// startGroup starts ranks on CPUs, one on each host, where a launcher has started this command on each and has made no MPI world. On
// rank 0's host mpirun is run; the others run the orted that it wants there.
func startGroup(place launcher.Place, p *schema.Profile) error {
	key, err := appliance.RanksKey(p)
	if err != nil {
		return err
	}
	wait := time.Duration(p.Parallel.Wait)
	if place.Rank > 0 {
		return runOrted(place, key, wait)
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	s := &supervisor{world: place.World, command: append([]string{exe}, os.Args[1:]...)}
	return s.run(func(control string) error { return s.onHosts(control, place, key, wait) })
}

// onHosts waits for the other hosts and starts mpirun, whose launch agent is this program: it passes what it gets to the
// host.
func (s *supervisor) onHosts(control string, place launcher.Place, key []byte, wait time.Duration) error {
	_, args, err := s.mpirun()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	group, err := orted.Gather(ctx, place.Leader, key, place.World, wait)
	stop()
	if err != nil {
		return err
	}
	socket := filepath.Join(filepath.Dir(control), "agent")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		group.Close()
		return err
	}
	go serveAgents(ln, group)
	own, _, err := net.SplitHostPort(place.Leader)
	if err != nil {
		return err
	}
	s.drained = group.Drained
	args = append(args, "--host", strings.Join(append([]string{own}, group.Hosts()...), ":1,")+":1", "--leave-session-attached",
		"--mca", "plm", "rsh", "--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "plm_rsh_agent", s.command[0]+" "+agentName+" "+socket,
		// Open MPI's own connections see a cut link after 5 s, and not after 5 minutes.
		"--mca", "oob_tcp_keepalive_time", "2", "--mca", "oob_tcp_keepalive_intvl", "1", "--mca", "oob_tcp_keepalive_probes", "3")
	// By its name: called by its path, mpirun wants the same folder on the other hosts, and a shell there.
	return s.start("mpirun", append(args, s.command...), ownControl+"="+control)
}

// agentName is the command that mpirun runs in place of ssh.
const agentName = "ranks-agent"

// agentRequest is what that command sends to the process that has started mpirun. The reply is a text, empty if orted has ended well.
type agentRequest struct {
	Host    string
	Command []string
}

// serveAgents runs orted on the host of each request.
func serveAgents(ln net.Listener, group *orted.Group) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			var r agentRequest
			if json.NewDecoder(c).Decode(&r) != nil {
				return
			}
			text := ""
			if err := group.Run(r.Host, r.Command); err != nil {
				text = err.Error()
			}
			_ = json.NewEncoder(c).Encode(text) // if it is lost, mpirun has ended
		}()
	}
}

// agentCommand is mpirun's launch agent. Its arguments are the socket, the host, and what a shell there would run.
func agentCommand() *cobra.Command {
	return &cobra.Command{
		Use: agentName + " SOCKET HOST COMMAND…", Short: "what mpirun runs in place of ssh, for ranks on several hosts", Hidden: true,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) < 3 {
				return errors.New("mpirun runs this with the socket of vapp up, a host and a command")
			}
			c, err := net.Dial("unix", args[0])
			if err != nil {
				return err
			}
			defer c.Close()
			if err := json.NewEncoder(c).Encode(agentRequest{args[1], args[2:]}); err != nil {
				return err
			}
			var text string
			if err := json.NewDecoder(c).Decode(&text); err != nil {
				return fmt.Errorf("the process that started mpirun is gone: %w", err)
			}
			if text != "" {
				return errors.New(text)
			}
			return nil
		},
	}
}

// runOrted runs the orted of this host until it has ended, or until rank 0's host is gone. The first signal lets the running requests
// end, a second one ends the group.
func runOrted(place launcher.Place, key []byte, wait time.Duration) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	signal.Ignore(drainSignal, hangup) // rank 0 drains and reloads
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	program, err := exec.LookPath("orted")
	if err != nil {
		return errors.New("ranks on CPUs are started by Open MPI, whose orted is not on the path; install it (Debian: openmpi-bin)")
	}
	type joined struct {
		w    *orted.Worker
		args []string
		err  error
	}
	ready := make(chan joined, 1)
	go func() {
		w, err := orted.Join(ctx, place.Leader, key, place.Rank, wait)
		if err != nil {
			ready <- joined{err: err}
			return
		}
		args, err := w.Command()
		ready <- joined{w, args, err}
	}()
	var j joined
	select {
	case j = <-ready:
	case <-signals: // nothing runs yet
		return nil
	}
	if j.err != nil {
		return j.err
	}
	c := exec.Command(program, j.args...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	ownGroup(c)
	if err := c.Start(); err != nil {
		j.w.Close(127)
		return err
	}
	ended, lost := make(chan error, 1), make(chan error, 1)
	go func() { ended <- c.Wait() }()
	go func() { lost <- j.w.Lost() }()
	end := func() { // orted ends its ranks
		_ = c.Process.Signal(syscall.SIGTERM)
		time.AfterFunc(ranksGrace, func() { killGroup(c.Process.Pid) })
	}
	var gone error
	for asked := false; ; {
		select {
		case <-signals:
			if asked {
				end()
				continue
			}
			asked = true
			if j.w.Drain() != nil {
				end()
			}
		case gone = <-lost:
			lost = nil
			end()
		case err := <-ended:
			code := c.ProcessState.ExitCode()
			j.w.Close(code)
			switch {
			case err == nil:
				return nil
			case gone != nil:
				return gone
			}
			return exitError(max(1, code))
		}
	}
}
