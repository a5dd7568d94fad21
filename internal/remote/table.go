package remote

// Table returns all operations.
func Table() []Operation {
	return []Operation{
		Status, Watch, Calls, Answers, GatewayAnswers, Processes, Examine, Search, Gateways, Named, Unlisted, Audit, Lanes, Lane,
		Job, Park, ForgetJobs, Jobs,
		Batches, Batch, BatchJobs, PauseBatch, ResumeBatch, CancelBatch, ApproveBatch, RejectBatch, Approvals, ApproveRequest, RejectRequest,
		DeadLetters, DeadLetter, Stats, DeadExport, Previewed, Clear, History, VerifyTrail, ExportTrail,
		Outcomes, AckOutcomes, Pause, Resume, Limits, SetLimits, ResetLimits, ForgiveLimits, Brakes, LiftBrakes, SetLane, ResetLane, PauseLane, ResumeLane, PauseRoute, ResumeRoute, Rename, Forget,
	}
}
