package demo

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// smallPipelines cuts pipelines into pieces. The embedded Redis is reached through unbuffered pipes: it can't take more of a
// pipeline than it holds in its own 4 KiB before somebody reads its answers, and the client reads none before it has sent all.
type smallPipelines struct{}

// pipelinePiece is how many commands fit into 4 KiB: those in a pipeline of ours are of some 200 bytes.
const pipelinePiece = 10

// DialHook leaves dialling as it is.
func (smallPipelines) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook leaves single commands as they are: they are read as a whole before they are answered.
func (smallPipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook sends one piece after the other; as with a whole pipeline, its error is the first of all.
func (smallPipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var first error
		for len(cmds) > 0 {
			piece := cmds[:min(pipelinePiece, len(cmds))]
			cmds = cmds[len(piece):]
			if err := next(ctx, piece); err != nil && first == nil {
				first = err
			}
		}
		return first
	}
}
