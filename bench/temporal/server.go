package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"

	"go.temporal.io/sdk/client"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/temporal"
	"go.temporal.io/server/temporaltest"
	"google.golang.org/grpc"
)

// serve runs a server, with SQLite in its memory, until its standard input ends. temporaltest keeps its address to itself, so the first connection tells it.
func serve(args []string) error {
	partitions, numberErr := strconv.Atoi(args[0])
	fair, err := strconv.ParseBool(args[1])
	if err := errors.Join(numberErr, err); err != nil {
		return err
	}
	where := make(chan string, 1)
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		select {
		case where <- addr:
		default:
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}
	quiet := client.Options{Logger: silent{}, ConnectionOptions: client.ConnectionOptions{DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial)}}}
	s := temporaltest.NewServer(temporaltest.WithBaseClientOptions(quiet), temporaltest.WithBaseServerOptions(options(partitions, fair)...))
	s.GetDefaultClient()
	fmt.Println(<-where, s.GetDefaultNamespace())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// options has a task queue in so many parts, or in the four that it has by default. A part has its share of the rate. Fairness keys are off by default.
func options(partitions int, fair bool) []temporal.ServerOption {
	config := dynamicconfig.StaticClient{}
	set := func(key dynamicconfig.Key, value any) { config[key] = []dynamicconfig.ConstrainedValue{{Value: value}} }
	set(dynamicconfig.ForceSearchAttributesCacheRefreshOnRead.Key(), true) // as temporaltest has it
	set(dynamicconfig.MatchingEnableFairness.Key(), fair)
	if partitions > 0 {
		set(dynamicconfig.MatchingNumTaskqueueReadPartitions.Key(), partitions)
		set(dynamicconfig.MatchingNumTaskqueueWritePartitions.Key(), partitions)
	}
	return []temporal.ServerOption{temporal.WithDynamicConfigClient(config)}
}

// silent is a logger that says nothing.
type silent struct{}

func (silent) Debug(string, ...any) {}
func (silent) Info(string, ...any)  {}
func (silent) Warn(string, ...any)  {}
func (silent) Error(string, ...any) {}
