package desk

import (
	"cmp"

	"spillway/internal/job"
)

// runbook is the page of the sections below.
const runbook = "docs/runbook.md#"

// Runbook returns the section of the runbook that says what to do: the one that the alert links to.
func (k NeedKind) Runbook() string {
	switch k {
	case NeedStopped, NeedDenied, NeedCircuit, NeedUnserved, NeedPaused:
		return RunbookOf(k.word())
	case NeedReader:
		return runbook + "spillwayoutcomesheld"
	case NeedBatch:
		return runbook + "spillwaybatchstopped"
	case NeedUnlisted:
		return runbook + "jobs-of-a-gateway-that-the-file-does-not-have"
	case NeedLookups:
		return runbook + "spillwaylookupsfail"
	case NeedOverload:
		return runbook + "spillwaybelowitslimit"
	case NeedRoom:
		return runbook + "spillwayparkednearmost"
	case NeedBytes:
		return runbook + "spillwayparkednearbytes"
	}
	return RunbookOfReason(job.Reason(k))
}

// word returns the status word of the kind.
func (k NeedKind) word() string {
	if k == NeedCircuit {
		return Open
	}
	return string(k)
}

// RunbookOf returns the section of the runbook for a word of Status.Word.
func RunbookOf(word string) string {
	switch word {
	case Denied:
		return runbook + "spillwaydenied"
	case Held:
		return runbook + "spillwayheld"
	case Open:
		return runbook + "spillwaycircuitopen"
	case Paused:
		return runbook + "spillwaypaused"
	}
	return runbook + "what-keeps-a-gateways-calls-back"
}

// RunbookOfReason returns the section of the runbook for the reason of a parked job.
func RunbookOfReason(r job.Reason) string {
	return runbook + cmp.Or(r.About().Section, "why-a-job-is-parked")
}
