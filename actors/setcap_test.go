package actors

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

// TestCapChanges: a higher bound starts who waits at once; a lower one takes no
// slot away and is kept from then on.
func TestCapChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := testAdmission(t, &config.Pools{DefaultCap: 1, MaxQueue: 10, Classes: seedPools().Classes}, nil)
		granted := make(chan *slot, 4)
		take := func() {
			go func() {
				s, err := a.acquire(context.Background(), "rev", "m", subjects.ClassIngestion)
				if err != nil {
					t.Error(err)
				}
				granted <- s
			}()
			synctest.Wait()
		}
		running := func() int { return len(granted) }
		set := func(n int) {
			for _, pid := range *a.pools.Load() {
				a.sys.send(pid, setCap{n})
			}
			synctest.Wait()
		}
		take()
		take()
		if running() != 1 {
			t.Fatalf("%d run above the bound of 1", running())
		}
		set(2)
		if running() != 2 {
			t.Fatalf("%d run, the bound is 2", running())
		}
		take()
		set(1)
		first, second := <-granted, <-granted
		first.release()
		synctest.Wait()
		if running() != 0 {
			t.Error("a slot was given above a lowered bound")
		}
		second.release()
		(<-granted).release()
	})
}
