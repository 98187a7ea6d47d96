package cli

import "github.com/sluice-llm/sluice/subjects"

// notBuilt is the failure of a command of the contract that this version lacks.
func notBuilt(command, instead string) error {
	return failf(subjects.KindValidation, "%s is not built yet; %s", command, instead)
}

// topCmd will be a live view.
type topCmd struct {
	Args []string `arg:"" optional:"" passthrough:"" hidden:""`
}

// Run says that it is not built.
func (*topCmd) Run() error {
	return notBuilt("top", "`sluice health` shows the pools, `sluice events` what happens")
}
