package node

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// probe runs the container's probes as the kubelet does until ctx is done: the startup probe until it
// succeeds, then readiness and liveness. A container whose startup or liveness probe has failed too
// often is ended.
func (c *container) probe(ctx context.Context) {
	if p := c.spec.StartupProbe; p != nil {
		if !c.until(ctx, p) {
			return
		}
		c.update(func(s *core.ContainerStatus) { yes := true; s.Started = &yes })
	}
	if p := c.spec.LivenessProbe; p != nil {
		go c.watch(ctx, p, func(well bool) {
			if !well {
				c.endUnwell("liveness")
			}
		})
	}
	if p := c.spec.ReadinessProbe; p != nil {
		c.watch(ctx, p, func(well bool) { c.update(func(s *core.ContainerStatus) { s.Ready = well }) })
		return
	}
	c.update(func(s *core.ContainerStatus) { s.Ready = true })
}

// until repeats the startup probe. It returns false if the container was ended.
func (c *container) until(ctx context.Context, p *core.Probe) bool {
	for failures := int32(0); ; {
		if !sleep(ctx, seconds(p.PeriodSeconds, 10)) {
			return false
		}
		if c.ask(ctx, p) == nil {
			return true
		}
		if failures++; failures >= max(1, p.FailureThreshold) {
			c.endUnwell("startup")
			return false
		}
	}
}

// watch calls change when the probe's result changes by its thresholds.
func (c *container) watch(ctx context.Context, p *core.Probe, change func(well bool)) {
	well, first, failures, successes := false, true, int32(0), int32(0)
	for {
		if c.ask(ctx, p) == nil {
			failures, successes = 0, successes+1
			if (!well || first) && successes >= max(1, p.SuccessThreshold) {
				well, first = true, false
				change(true)
			}
		} else {
			failures, successes = failures+1, 0
			if (well || first) && failures >= max(1, p.FailureThreshold) {
				well, first = false, false
				change(false)
			}
		}
		if !sleep(ctx, seconds(p.PeriodSeconds, 10)) {
			return
		}
	}
}

// ask sends the probe's GET.
func (c *container) ask(ctx context.Context, p *core.Probe) error {
	if p.HTTPGet == nil {
		return fmt.Errorf("this node probes by httpGet alone")
	}
	port := p.HTTPGet.Port.IntValue()
	if p.HTTPGet.Port.Type == intstr.String {
		for _, x := range c.spec.Ports {
			if x.Name == p.HTTPGet.Port.StrVal {
				port = int(x.ContainerPort)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, seconds(p.TimeoutSeconds, 1))
	defer cancel()
	c.pod.mu.Lock()
	addr := c.pod.status.PodIP
	c.pod.mu.Unlock()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:%d%s", addr, port, p.HTTPGet.Path), nil)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", "kube-probe/1.35")
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode >= 400 {
		return fmt.Errorf("status %d", answer.StatusCode)
	}
	return nil
}

// endUnwell ends a container that a probe has found unwell, with the pod's grace period.
func (c *container) endUnwell(probe string) {
	fmt.Printf("node %s: %s/%s fails its %s probe\n", c.pod.node.options.Name, c.pod.object.Name, c.spec.Name, probe)
	c.mu.Lock()
	process := c.process
	c.mu.Unlock()
	c.signal(syscall.SIGTERM)
	grace := int64(30)
	if g := c.pod.object.Spec.TerminationGracePeriodSeconds; g != nil {
		grace = *g
	}
	time.AfterFunc(time.Duration(grace)*time.Second, func() {
		c.mu.Lock()
		same := c.process == process
		c.mu.Unlock()
		if same { // no later start
			c.signalKill()
		}
	})
}

func seconds(n, otherwise int32) time.Duration {
	if n == 0 {
		n = otherwise
	}
	return time.Duration(n) * time.Second
}

// sleep returns false if ctx is done before d has passed.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
