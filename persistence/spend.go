package persistence

import (
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// Spend is what was spent by a run, by a batch or in a time.
type Spend struct {
	// Calls counts usage records.
	Calls int64
	// Tokens are the total tokens on accounts that are neither local nor mock,
	// those of failed tries among them.
	Tokens int64
	// Cost is what is known of the cost, failed tries among it.
	Cost subjects.USD
	// Last is the newest record's timestamp; zero when there is none.
	Last time.Time
}

// Spent returns what was spent so far: in scope subjects.BudgetRun by the run id,
// in subjects.BudgetBatch by the batch id, in subjects.BudgetTotal in a day
// ("2026-12-01"), a month ("2026-12"), both UTC, or ever ("all"). The zero Spend
// is returned when there is nothing.
func (s *Store) Spent(scope, id string) (Spend, error) {
	return Spend{}, nil
}
