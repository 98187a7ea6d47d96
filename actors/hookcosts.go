package actors

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/hooks"
)

const (
	// maxCosts bounds the costs that wait for the budget tracker, costsAtOnce those
	// that it is told side by side.
	maxCosts    = 4096
	costsAtOnce = 32
	// costGrace is how long a closing desk goes on telling.
	costGrace = time.Second
)

// costTeller tells the budget tracker what calls have cost, in no order. It holds
// up no call: costs wait in a bounded queue, and are lost when it is full.
type costTeller struct {
	d      *hookDesk
	queue  chan *hooks.BudgetCost
	places chan struct{}
	once   sync.Once
	quit   chan struct{}
	done   chan struct{}

	base context.Context
	stop context.CancelFunc
	work sync.WaitGroup // costs that are being told
}

func newCostTeller(d *hookDesk) *costTeller {
	t := &costTeller{
		d: d, queue: make(chan *hooks.BudgetCost, maxCosts), places: make(chan struct{}, costsAtOnce),
		quit: make(chan struct{}), done: make(chan struct{}),
	}
	t.base, t.stop = context.WithCancel(context.Background())
	go t.run()
	return t
}

func (t *costTeller) take(c *hooks.BudgetCost) {
	select {
	case t.queue <- c:
	default:
		t.lose()
	}
}

func (t *costTeller) lose() { t.d.sys.send(t.d.watch, costLost{}) }

func (t *costTeller) run() {
	defer close(t.done)
	for {
		select {
		case c := <-t.queue:
			t.tell(c)
		case <-t.quit:
			t.rest()
			return
		}
	}
}

// rest tells what is left in the queue.
func (t *costTeller) rest() {
	defer t.work.Wait()
	for {
		select {
		case c := <-t.queue:
			t.tell(c)
		default:
			return
		}
	}
}

// tell tells of one cost once there is a place for it.
func (t *costTeller) tell(c *hooks.BudgetCost) {
	t.places <- struct{}{}
	t.work.Go(func() {
		defer func() { <-t.places }()
		r := &t.d.rules.Load().budget
		if !r.set { // it was taken out of the configuration meanwhile
			return
		}
		if _, why := consult(t.base, t.d, t.d.costs, r, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, r.hook.TrackCost(ctx, c)
		}); why != "" {
			t.lose()
		}
	})
}

// close stops telling: at once, when it takes longer than costGrace.
func (t *costTeller) close() {
	t.once.Do(func() { close(t.quit) })
	grace := time.AfterFunc(costGrace, t.stop)
	defer grace.Stop()
	<-t.done
	t.stop()
}
