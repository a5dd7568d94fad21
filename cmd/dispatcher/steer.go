package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/remote"
)

// steersman is who is at the keyboard. Where nobody knows, as in a container, the number has to do: a gateway must be paused all the same.
func steersman() string {
	who, err := cli.WhoAmI()
	if err != nil {
		return fmt.Sprintf("uid %d", os.Getuid())
	}
	return who
}

// steering is an act upon a gateway by who is at the keyboard.
func steering(gateway, why string) remote.GatewayAct {
	return remote.GatewayAct{Gateway: gateway, Actor: remote.ActorOf(desk.By{Who: steersman(), Why: why})}
}

// consentFlags adds the flags of an act that asks first.
func consentFlags(cmd *cobra.Command, c *cli.Consent) {
	cmd.Flags().BoolVar(&c.Yes, "yes", false, "do it without asking")
	cmd.Flags().BoolVar(&c.DryRun, "dry-run", false, "say what would be done, and do nothing")
}
