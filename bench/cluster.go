package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	clusterNodes    = 3 // the least that a cluster may have
	gatewaysOfNode  = 2
	clusterSlots    = 16384
	clusterPatience = 30 * time.Second
)

// shards compares gateways on one redis-server with the same ones on a cluster of three, two to each: what each server works on a job
// says how many jobs it can carry, also where there are more processors than here.
type shards struct {
	*bulk
	servers []*server
	names   []string // of the gateways, those of one server next to each other
}

// clustered measures both and prints a table.
func clustered(ctx context.Context, o options) error {
	p, err := newProvider()
	if err != nil {
		return err
	}
	defer p.srv.Close()
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "%d jobs for %d gateways, medians of %d runs\tjobs/s\tµs of a server on a job\tmost of one server's share\t\n", o.jobs, clusterNodes*gatewaysOfNode, o.runs)
	var names []string
	for _, nodes := range []int{clusterNodes, 1} { // only a cluster says which slot a name has
		if names, err = nodesOf(ctx, nodes, names, p, o, w); err != nil {
			return err
		}
	}
	return w.Flush()
}

// nodesOf measures one set-up and returns the gateways that it had: those named, or new ones.
func nodesOf(ctx context.Context, nodes int, names []string, p *provider, o options, w io.Writer) ([]string, error) {
	var args []string
	if nodes > 1 {
		args = []string{"--cluster-enabled", "yes"}
	}
	s := &shards{names: names}
	defer func() {
		for _, one := range s.servers {
			one.stop()
		}
	}()
	for range nodes {
		one, err := startRedis(args...)
		if err != nil {
			return nil, err
		}
		s.servers = append(s.servers, one)
	}
	if err := s.prepare(ctx, p, o); err != nil {
		return nil, err
	}
	in, out := make([]load, o.runs), make([]load, o.runs)
	for i := range o.runs {
		if err := s.once(ctx, p, &in[i], &out[i]); err != nil {
			return nil, err
		}
	}
	name := map[bool]string{true: "one redis-server", false: "a cluster of three"}[nodes == 1]
	fmt.Fprintf(w, "in, by one enqueue, %s\t%s\t\n", name, middle(in))
	fmt.Fprintf(w, "out, by one dispatcher run, %s\t%s\t\n", name, middle(out))
	return s.names, nil
}

// prepare makes the servers a cluster, names the gateways, and writes the configuration and the billing file.
func (s *shards) prepare(ctx context.Context, p *provider, o options) error {
	if err := s.join(ctx); err != nil {
		return err
	}
	c := redis.NewClient(&redis.Options{Addr: s.servers[0].addr, MaxRetries: -1})
	defer c.Close()
	b, err := newBulk(c, s.servers[0], p.url, o.jobs)
	if err != nil {
		return err
	}
	s.bulk = b
	if s.names == nil {
		s.names = gatewayNames(ctx, c)
	}
	s.gateway = s.names[0]
	url := "redis://" + s.servers[0].addr + "/0"
	if len(s.servers) > 1 {
		url = "redis-cluster://" + strings.Join(s.addrs(), ",")
	}
	text := "redis: " + url + "\ngateways:\n"
	_, gateway, _ := strings.Cut(fmt.Sprintf(configText, "", p.url), "  bench:\n")
	for _, name := range s.names {
		text += "  " + name + ":\n" + gateway
	}
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		return err
	}
	var file strings.Builder
	for i := range o.jobs {
		fmt.Fprintf(&file, "{\"id\":%q,\"gateway\":%q,\"payload\":%s}\n", id(i), s.names[i%len(s.names)], payload(i))
	}
	return os.WriteFile(s.file, []byte(file.String()), 0o600)
}

func (s *shards) addrs() (all []string) {
	for _, one := range s.servers {
		all = append(all, one.addr)
	}
	return all
}

// join makes a cluster of the servers, by Redis's own tool, and waits until it serves.
func (s *shards) join(ctx context.Context) error {
	if len(s.servers) == 1 {
		return nil
	}
	create := exec.CommandContext(ctx, "redis-cli", append([]string{"--cluster-yes", "--cluster", "create"}, s.addrs()...)...)
	if out, err := create.CombinedOutput(); err != nil {
		return fmt.Errorf("make a cluster: %w\n%s", err, out)
	}
	for deadline := time.Now().Add(clusterPatience); ; time.Sleep(50 * time.Millisecond) {
		ready := 0
		for _, one := range s.servers {
			if info, _ := one.ask(ctx, "CLUSTER", "INFO"); strings.Contains(info, "cluster_state:ok") {
				ready++
			}
		}
		switch {
		case ready == len(s.servers):
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%d of %d servers of the cluster serve after %s", ready, len(s.servers), clusterPatience)
		}
	}
}

// gatewayNames names two gateways for each third of the slots, so that the set-ups have the same ones.
func gatewayNames(ctx context.Context, c *redis.Client) []string {
	thirds := make([][]string, clusterNodes)
	for i, full := 0, 0; full < clusterNodes; i++ {
		name := fmt.Sprintf("bench%d", i)
		third := min(int(c.ClusterKeySlot(ctx, name).Val())*clusterNodes/clusterSlots, clusterNodes-1)
		if len(thirds[third]) == gatewaysOfNode {
			continue
		}
		if thirds[third] = append(thirds[third], name); len(thirds[third]) == gatewaysOfNode {
			full++
		}
	}
	var all []string
	for _, names := range thirds {
		all = append(all, names...)
	}
	return all
}

// once empties the servers, takes the jobs in, and sends as many as a run of the dispatcher has.
func (s *shards) once(ctx context.Context, p *provider, in, out *load) (err error) {
	for _, one := range s.servers {
		if _, err := one.ask(ctx, "FLUSHALL"); err != nil {
			return err
		}
	}
	*in, err = s.during(ctx, s.jobs, func() (float64, error) {
		r, err := s.enqueue(ctx)
		if err == nil && r.Enqueued != s.jobs {
			err = fmt.Errorf("%d of %d jobs went in", r.Enqueued, s.jobs)
		}
		return r.rate, err
	})
	if err != nil {
		return err
	}
	*out, err = s.during(ctx, min(s.peers, dispatched), func() (float64, error) { return s.dispatcher(ctx, p) })
	return err
}
