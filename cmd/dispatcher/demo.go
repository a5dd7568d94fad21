package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/demo"
	"spillway/internal/job"
)

func demoCommand(p *program) *cobra.Command {
	var picture string
	cmd := &cobra.Command{
		Use: "demo", Short: "Watch the whole system on this machine, with nothing installed",
		Long: `Demo plays the whole system in one process, in about half a minute: an embedded Redis, a strict provider that
allows 100 calls a second, a sample billing file, and two workers. It needs no configuration and no network, and stores nothing.
It ends with a summary that checks its own totals: exit code 1 if they don't add up.`,
		Example: "  dispatcher demo\n  dispatcher demo -o json\n  dispatcher demo --picture limit.svg",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.demo(cmd.Context(), picture) },
	}
	cmd.Flags().StringVar(&picture, "picture", "", "draw the calls against the limit into this SVG `FILE`")
	return cmd
}

const keepsNothing = "THE REDIS OF THIS DEMO LIVES IN THIS PROCESS AND KEEPS NOTHING: every job here is gone when it ends.\n"

func (p *program) demo(ctx context.Context, picture string) error {
	if p.Redis != "" {
		return cli.Usage("leave --redis out; to use a Redis of your own: dispatcher run", "the demo brings its own Redis")
	}
	play := demo.Default()
	var watcher demo.Watcher = silence{}
	if !p.Quiet {
		screen := demo.NewScreen(p.Err, p.ErrTerminal)
		defer screen.Close()
		screen.Tell(keepsNothing)
		watcher = screen
		play.Log = slog.New(slog.NewTextHandler(screen, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	o, err := demo.Run(ctx, play, watcher)
	if err != nil {
		return err
	}
	if s, ok := watcher.(*demo.Screen); ok {
		s.Close()
	}
	return errors.Join(p.report(&o.Reckoning), draw(picture, o), o.Reckoning.Err())
}

func (p *program) report(r *demo.Reckoning) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, r)
	}
	return r.WriteText(p.Out)
}

// draw writes the picture, if one is requested.
func draw(file string, o demo.Outcome) error {
	if file == "" {
		return nil
	}
	if err := os.WriteFile(file, demo.Picture(o), 0o644); err != nil {
		return &job.Error{Code: job.CodeFailed, Message: "the picture could not be written", Err: err, Hint: "choose another --picture FILE"}
	}
	return nil
}

// silence watches the demo with -q.
type silence struct{}

// Tell does nothing.
func (silence) Tell(string) {}

// Show does nothing.
func (silence) Show(demo.View) {}
