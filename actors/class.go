package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/sluice-llm/sluice/subjects"
)

// Messages of a class pool.
type (
	// classWant asks for one slot; the answer is classGranted or classDenied.
	classWant struct{ from *actor.PID }
	// classReturn gives the slot of a grant back. An unknown grant, or one given
	// back before, changes nothing.
	classReturn struct{ grant uint64 }
	// setSlots changes the bound. Slots that are held above a lower one stay held.
	setSlots   struct{ slots int }
	classStats struct{ reply chan<- subjects.ClassHealth }
)

// classPool owns the slots of one workload class over all model pools. A pool
// that was denied stands in line until a slot is free; the slot is then offered
// to it, reserved, and goes to the next in line if the pool has no use for it
// by now. The line is first in first out, so no model pool starves another.
type classPool struct {
	sys   *system
	class string
	slots int

	grants  map[uint64]*actor.PID
	nextID  uint64
	line    []*actor.PID
	waits   map[*actor.PID]bool
	peak    int
	granted int64
}

func (c *classPool) receive(_ *actor.PID, msg any) {
	switch m := msg.(type) {
	case classWant:
		if len(c.grants) < c.slots {
			c.sys.send(m.from, classGranted{class: c.class, grant: c.grant(m.from)})
			return
		}
		if !c.waits[m.from] {
			c.waits[m.from] = true
			c.line = append(c.line, m.from)
		}
		c.sys.send(m.from, classDenied{class: c.class})
	case classReturn:
		if c.grants[m.grant] == nil {
			return
		}
		delete(c.grants, m.grant)
		c.offer()
	case setSlots:
		c.slots = m.slots
		c.offer()
	case classStats:
		m.reply <- subjects.ClassHealth{Slots: c.slots, Active: len(c.grants), Peak: c.peak, Granted: c.granted}
	}
}

func (c *classPool) grant(to *actor.PID) uint64 {
	c.nextID++
	c.grants[c.nextID] = to
	c.peak = max(c.peak, len(c.grants))
	c.granted++
	return c.nextID
}

// offer gives free slots to the pools in line.
func (c *classPool) offer() {
	for len(c.line) > 0 && len(c.grants) < c.slots {
		to := c.line[0]
		c.line[0] = nil
		c.line = c.line[1:]
		delete(c.waits, to)
		c.sys.send(to, classOffer{class: c.class, grant: c.grant(to)})
	}
}
