package sluice

import (
	"fmt"
	"testing"
)

// TestHoldersOf: who has a message, by the server's trace of it.
func TestHoldersOf(t *testing.T) {
	t.Parallel()
	const in = `{"type":"in","kind":0,"cid":4,"acc":"$G","subj":"s"}`
	for trace, want := range map[string]string{
		`{"events":[` + in + `,{"type":"eg","kind":0,"cid":7,"name":"p","sub":"s","queue":"q"}]}`:                                "[7]",
		`{"events":[` + in + `,{"type":"eg","kind":0,"cid":5,"sub":"s"},{"type":"eg","kind":0,"cid":7,"sub":"s","queue":"q"}]}`:  "[7]",
		`{"events":[` + in + `,{"type":"eg","kind":0,"cid":5,"sub":"s"},{"type":"eg","kind":0,"cid":7,"sub":"s"}]}`:              "[5 7]",
		`{"events":[` + in + `,{"type":"eg","kind":0,"cid":5,"sub":"s","error":"no"},{"type":"eg","kind":0,"cid":7,"sub":"s"}]}`: "[7]",
		`{"events":[` + in + `,{"type":"eg","kind":2,"cid":9,"hop":"1"},{"type":"eg","kind":0,"cid":7,"sub":"s","queue":"q"}]}`:  "[]",
		`{"events":[` + in + `]}`: "[]",
		`{"events":[{"type":"in","kind":0,"cid":7,"subj":"_NODE.r"},{"type":"eg","kind":0,"cid":4,"sub":"_NODE.>"}]}`: "[]",
		`hello`: "[]",
	} {
		if got := fmt.Sprint(holdersOf([]byte(trace), "s")); got != want {
			t.Errorf("%s: %s, not %s", trace, got, want)
		}
	}
}

// TestLost: a call is lost when no connection that has it is there any more, and
// not while it is unknown who has it.
func TestLost(t *testing.T) {
	t.Parallel()
	there := map[uint64]bool{7: true}
	connected := func(id uint64) bool { return there[id] }
	p := &parcel{}
	if p.lost(connected) {
		t.Error("lost before anybody had it")
	}
	p.holders.Store(&[]uint64{5, 7})
	if p.lost(connected) {
		t.Error("lost although one has it")
	}
	delete(there, 7)
	if !p.lost(connected) {
		t.Error("not lost")
	}
}
