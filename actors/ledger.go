package actors

import (
	"context"
	"log/slog"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

// ledgerOptions is what a ledger is made of.
type ledgerOptions struct {
	// emit publishes an event; it must not block.
	emit func(subject string, event any)
	// spent says what a budget has spent by the records of the usage log. It heeds
	// ctx, which bounds it.
	spent func(ctx context.Context, scope, id string) (tokens int64, cost subjects.USD, err error)
	log   *slog.Logger
}

// ledger is the calls' side of the budgets.
type ledger struct {
	sys *system
	o   ledgerOptions
}

func newLedger(sys *system, _ *config.Config, o ledgerOptions) *ledger { return &ledger{sys: sys, o: o} }

// reconfigure makes new limits and prices hold, for the calls in line too.
func (l *ledger) reconfigure(*config.Config) {}

// bill says whose budgets a call counts against; "" = none of that kind.
type bill struct{ runID, batchID string }

// over says which budgets are used up: freeOnly is the text for
// routing.Job.FreeOnly, localOnly that for LocalOnly. Its error is ctx's end.
func (l *ledger) over(context.Context, bill) (freeOnly, localOnly string, err error) {
	return "", "", nil
}

// estimate says what is known of a call before it is made. model is canonical;
// maxTokens 0 = the caller named no bound.
type estimate struct {
	bill
	provider, model, account string
	local                    bool
	inputTokens, maxTokens   int64
}

// reserve waits until the budgets have room for the call.
func (l *ledger) reserve(context.Context, estimate) (*reserved, error) { return nil, nil } //nolint:nilnil // nil is a reservation of nothing

// reserved is what a call holds of its budgets until it is settled.
type reserved struct{ l *ledger }

// settle gives the reservation back and counts what the call spent. Only the
// first has an effect; a nil reservation is fine.
func (r *reserved) settle(*subjects.USD, subjects.Usage) {}

// budgetState is one budget as health shows it.
type budgetState struct {
	Scope, ID, Unit        string
	Spent, Reserved, Limit float64
	// Known says that what was spent before this node's start is counted.
	Known   bool
	Waiting int
}

// state lists the total and the budgets that were used last.
func (l *ledger) state(context.Context) []budgetState { return nil }
