package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-llm/sluice/subjects"
)

// scenario is one run of the demo. Its fields belong to the goroutine of run.
type scenario struct {
	t     subjects.Transport
	show  show
	start time.Time

	health    subjects.Health
	done      map[string]int
	failures  []string
	results   []*subjects.Result
	saturated []saturation
}

// saturation is an llm.pool_saturated event and when it came.
type saturation struct {
	after time.Duration
	event subjects.PoolSaturatedEvent
}

// answer is the end of one call.
type answer struct {
	class string
	res   *subjects.Result
	err   error
}

// pollEvery is how often the pools are looked at, pollUsage how often the usage log.
const (
	pollEvery = 50 * time.Millisecond
	pollUsage = 20 * time.Millisecond
)

var (
	demoWriters = []string{"planner", "writer", "verifier"}
	demoAskers  = []string{"ask_service", "research_service", "qa_service"}
)

func newScenario(t subjects.Transport, a *app) *scenario {
	s := &scenario{t: t, start: time.Now(), done: map[string]int{}}
	if a.out.tty {
		s.show = &screen{out: a.out}
	} else {
		s.show = &progress{out: a.out}
	}
	return s
}

// run sends all calls at once, ingestion first, and follows them to their end.
func (s *scenario) run(ctx context.Context, nc *nats.Conn) error {
	events := make(chan *nats.Msg, 256)
	sub, err := nc.ChanSubscribe(subjects.PoolSaturated, events)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	answers := make(chan answer, demoIngestion+demoInteractive)
	s.show.begin()
	s.start = time.Now()
	for i := range demoIngestion {
		go s.call(ctx, answers, subjects.ClassIngestion, ingestionJob(i))
	}
	for i := range demoInteractive {
		go s.call(ctx, answers, subjects.ClassInteractive, question(i))
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for left := demoIngestion + demoInteractive; left > 0; {
		select {
		case an := <-answers:
			s.answered(an)
			left--
		case m := <-events:
			s.event(m)
		case <-tick.C:
		}
		if err := s.look(ctx); err != nil {
			return err
		}
	}
	for len(events) > 0 {
		s.event(<-events)
	}
	if err := s.look(ctx); err != nil {
		return err
	}
	s.show.end(s)
	return nil
}

func ingestionJob(i int) *subjects.Request {
	return demoRequest(taskIngestion, demoWriters[i%len(demoWriters)],
		fmt.Sprintf("Chapter %d: write the page about the worker pools.", i+1))
}

func question(i int) *subjects.Request {
	return demoRequest(taskInteractive, demoAskers[i%len(demoAskers)],
		fmt.Sprintf("Question %d: where is the provider cap enforced?", i+1))
}

func demoRequest(task, process, text string) *subjects.Request {
	r := &subjects.Request{Provider: "mock", Tier: subjects.TierStandard, Task: task, Process: process, SkipCache: true}
	r.Messages = []subjects.Message{{Role: "user", Content: subjects.Text(text)}}
	return r
}

func (s *scenario) call(ctx context.Context, answers chan<- answer, class string, req *subjects.Request) {
	res, err := subjects.Call(ctx, s.t, class, req)
	answers <- answer{class, res, err}
}

func (s *scenario) answered(an answer) {
	if an.err != nil {
		s.failures = append(s.failures, an.class+": "+an.err.Error())
		return
	}
	s.done[an.class]++
	s.results = append(s.results, an.res)
}

func (s *scenario) event(m *nats.Msg) {
	var e subjects.PoolSaturatedEvent
	if json.Unmarshal(m.Data, &e) == nil {
		s.saturated = append(s.saturated, saturation{time.Since(s.start), e})
		s.show.saturated(s)
	}
}

// look asks for the pools and shows them.
func (s *scenario) look(ctx context.Context) error {
	s.health = subjects.Health{}
	if err := subjects.Query(ctx, s.t, subjects.QueryHealth, nil, &s.health); err != nil {
		return err
	}
	s.show.pools(s)
	return nil
}

// logged is what the usage log has of the answered calls.
type logged struct {
	calls, twice int
	tokens       int64
}

// usage waits until the usage log has the answered calls, then reads its sums.
func (s *scenario) usage(ctx context.Context) (logged, *subjects.UsageSummary, error) {
	wait, stop := context.WithTimeout(ctx, queryTimeout)
	defer stop()
	tick := time.NewTicker(pollUsage)
	defer tick.Stop()
	for {
		got, err := s.logged(ctx)
		if err != nil {
			return got, nil, err
		}
		if got.calls >= len(s.results) || wait.Err() != nil { // what is missing then is judged as missing
			sum := &subjects.UsageSummary{}
			err := subjects.Query(ctx, s.t, subjects.QueryUsageSummary, &subjects.UsageQuery{Hours: 1}, sum)
			return got, sum, err
		}
		select {
		case <-wait.Done():
		case <-tick.C:
		}
	}
}

// logged looks up the answered calls among the newest records.
func (s *scenario) logged(ctx context.Context) (logged, error) {
	var r subjects.RecentUsage
	if err := subjects.Query(ctx, s.t, subjects.QueryUsageRecent, &subjects.RecentQuery{Limit: 1000}, &r); err != nil {
		return logged{}, err
	}
	seen := make(map[string]int, len(s.results))
	for _, res := range s.results {
		seen[res.CallID] = 0
	}
	var got logged
	for _, raw := range r.Calls {
		var rec subjects.UsageRecord
		if err := json.Unmarshal(raw, &rec); err != nil {
			return got, err
		}
		n, ours := seen[rec.ID]
		if !ours {
			continue
		}
		seen[rec.ID] = n + 1
		if n > 0 {
			got.twice++
			continue
		}
		got.calls++
		got.tokens += rec.TotalTokens
	}
	return got, nil
}
