package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Restarts wait as the kubelet's do, from a tenth of its first time on.
const (
	firstBackOff   = time.Second
	longestBackOff = 30 * time.Second
)

// container is one container of a pod.
type container struct {
	pod  *pod
	spec *core.Container
	list *[]core.ContainerStatus // of the pod's status

	mu      sync.Mutex
	process *os.Process // nil: it does not run
}

func newContainer(p *pod, spec *core.Container, list *[]core.ContainerStatus) *container {
	c := &container{pod: p, spec: spec, list: list}
	p.mu.Lock()
	p.live = append(p.live, c)
	p.mu.Unlock()
	c.update(func(s *core.ContainerStatus) {
		s.State = core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: "ContainerCreating"}}
	})
	return c
}

// update changes the container's status and writes the pod's.
func (c *container) update(change func(*core.ContainerStatus)) {
	c.pod.update(func(s *core.PodStatus) {
		i := slices.IndexFunc(*c.list, func(x core.ContainerStatus) bool { return x.Name == c.spec.Name })
		if i < 0 {
			i = len(*c.list)
			*c.list = append(*c.list, core.ContainerStatus{Name: c.spec.Name, Image: c.spec.Image})
		}
		change(&(*c.list)[i])
		if len(c.pod.status.ContainerStatuses) > 0 && c.pod.status.ContainerStatuses[0].State.Running != nil {
			s.Phase = core.PodRunning
		}
	})
}

// run runs the container, again and again by the pod's restart policy, until the pod is deleted.
func (c *container) run(ctx context.Context) {
	policy := c.pod.object.Spec.RestartPolicy
	for wait := firstBackOff; ; wait = min(2*wait, longestBackOff) {
		began := time.Now()
		code, err := c.once(ctx)
		switch {
		case err != nil:
			c.update(func(s *core.ContainerStatus) {
				s.State = core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: "CreateContainerError", Message: err.Error()}}
			})
		case c.pod.isEnding():
			return
		case policy == core.RestartPolicyNever, policy == core.RestartPolicyOnFailure && code == 0:
			c.pod.update(func(s *core.PodStatus) {
				s.Phase = core.PodSucceeded
				if code != 0 {
					s.Phase = core.PodFailed
				}
			})
			return
		}
		if time.Since(began) > 2*longestBackOff {
			wait = firstBackOff
		}
		if !c.pod.pause(wait) {
			return
		}
		c.update(func(s *core.ContainerStatus) { s.RestartCount++ })
	}
}

// once runs the container's process to its end and returns its exit code. An error means that it
// could not be started.
func (c *container) once(ctx context.Context) (code int, err error) {
	cmd, err := c.command()
	if err != nil {
		return 0, err
	}
	log, err := c.log()
	if err != nil {
		return 0, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := within(c.pod.namespace, cmd.Start); err != nil {
		return 0, err
	}
	c.mu.Lock()
	c.process = cmd.Process
	c.mu.Unlock()
	started := meta.Now()
	probing, stop := context.WithCancel(ctx)
	init := c.list == &c.pod.status.InitContainerStatuses
	unprobed := init || c.spec.StartupProbe == nil && c.spec.ReadinessProbe == nil
	c.update(func(s *core.ContainerStatus) {
		yes := c.spec.StartupProbe == nil
		s.State, s.Ready, s.Started = core.ContainerState{Running: &core.ContainerStateRunning{StartedAt: started}}, unprobed && !init, &yes
		s.ContainerID, s.ImageID = fmt.Sprintf("process://%d", cmd.Process.Pid), c.spec.Image
	})
	ended := make(chan struct{})
	var wait sync.WaitGroup
	if !init {
		wait.Go(func() { c.probe(probing) })
	}
	wait.Go(func() { c.terminate(ended) })
	_ = cmd.Wait()
	close(ended)
	stop()
	wait.Wait()
	c.mu.Lock()
	c.process = nil
	c.mu.Unlock()
	c.pod.group.kill() // children that outlive the first process
	state := cmd.ProcessState.Sys().(syscall.WaitStatus)
	end := &core.ContainerStateTerminated{ExitCode: int32(state.ExitStatus()), StartedAt: started, FinishedAt: meta.Now(), Reason: "Completed"}
	if state.Signaled() {
		end.ExitCode, end.Signal = 128+int32(state.Signal()), int32(state.Signal())
	}
	if end.ExitCode != 0 {
		end.Reason = "Error"
	}
	c.update(func(s *core.ContainerStatus) {
		no := false
		s.LastTerminationState = core.ContainerState{Terminated: end}
		s.State, s.Ready, s.Started = core.ContainerState{Terminated: end}, init && end.ExitCode == 0, &no
	})
	return int(end.ExitCode), nil
}

// terminate sends SIGTERM when the pod is deleted, behind the sleep of a preStop hook, and SIGKILL
// after the grace period.
func (c *container) terminate(ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-c.pod.ending:
	}
	kill := time.After(c.pod.grace)
	if l := c.spec.Lifecycle; l != nil && l.PreStop != nil && l.PreStop.Sleep != nil {
		select {
		case <-ended:
			return
		case <-kill:
		case <-time.After(time.Duration(l.PreStop.Sleep.Seconds) * time.Second):
		}
	}
	c.signal(syscall.SIGTERM)
	select {
	case <-ended:
	case <-kill:
		c.signalKill()
	}
}

func (c *container) signalKill() { c.signal(syscall.SIGKILL) }

func (c *container) signal(s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil {
		_ = syscall.Kill(-c.process.Pid, s)
	}
}

func (c *container) log() (*os.File, error) {
	path := c.pod.node.Log(c.pod.object.Namespace, c.pod.object.Name, c.spec.Name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// enter sets the host's name and joins the control groups as a process of root, and runs the program as the container's user
// on the container's root.
const enter = `hostname "$HOSTNAME" || exit 126; for g in $1; do echo $$ > $g/cgroup.procs || exit 126; done; shift; exec /usr/sbin/chroot "$@"`

// command returns the container's process, which is not started.
func (c *container) command() (*exec.Cmd, error) {
	repository, _, _ := strings.Cut(c.spec.Image, "@")
	if i := strings.LastIndexByte(repository, ':'); i > strings.LastIndexByte(repository, '/') {
		repository = repository[:i]
	}
	program, ok := c.pod.node.options.Images[repository]
	if !ok {
		return nil, fmt.Errorf("image %s: this node has no program for it", c.spec.Image)
	}
	user := int64(65532)
	if s := c.pod.object.Spec.SecurityContext; s != nil && s.RunAsUser != nil {
		user = *s.RunAsUser
	}
	root, err := c.root(program)
	if err != nil {
		return nil, err
	}
	env, err := c.environment()
	if err != nil {
		return nil, err
	}
	args := []string{"-c", enter, "sh", strings.Join(c.pod.group.paths, " "), "--userspec", fmt.Sprintf("%d:%d", user, user), "--groups=", root}
	if len(c.spec.Command) == 0 {
		args = append(args, "/image")
	}
	for _, a := range append(slices.Clone(c.spec.Command), c.spec.Args...) {
		args = append(args, expand(a, env))
	}
	cmd := exec.Command("/bin/sh", args...)
	for _, e := range env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	cmd.Env = append(cmd.Env, "PATH=/usr/local/bin:/usr/bin:/bin", "HOSTNAME="+c.pod.object.Name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS}
	return cmd, nil
}
