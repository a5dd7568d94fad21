package main

import (
	"github.com/spf13/cobra"
)

func laneCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "lane", Short: "Show and change a gateway's lanes while it runs",
		Long: `A lane is all jobs of a gateway with one key, such as a merchant's account. What is set for a lane is kept in Redis,
holds on every process at once, and wins over the file until it is reset.`,
		Example: "  dispatcher lane set -g stripe acct_1 --limits 50/s --weight 5\n  dispatcher lane pause -g stripe acct_1",
	}
	return cmd
}
