package actors

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// program is a provider that keeps what it was made of.
type program struct {
	providers.Provider
	cfg   *config.Provider
	alive func() error
}

func (p *program) Check(context.Context) error { return p.alive() }

// hall is an announced actor at a clock of the test's.
type hall struct {
	*announced
	clock time.Time
	made  []*program
	news  chan struct{}
}

func newHall() *hall {
	h := &hall{clock: time.Unix(1000, 0), news: make(chan struct{}, 1)}
	h.announced = &announced{
		now: func() time.Time { return h.clock }, changed: h.news,
		make: func(cfg *config.Provider, alive func() error) providers.Provider {
			p := &program{cfg: cfg, alive: alive}
			h.made = append(h.made, p)
			return p
		},
		taken: func(id string) bool { return id == "openai" },
		all:   map[string]*outsider{}, refused: map[string]bool{},
	}
	return h
}

func (h *hall) say(body string) error {
	a, err := readAnnouncement([]byte(body))
	reply := make(chan announceReply, 1)
	h.receive(nil, announce{a, err, reply})
	return (<-reply).err
}

// isNews reports whether the engine was told since the last look.
func (h *hall) isNews() bool {
	select {
	case <-h.news:
		return true
	default:
		return false
	}
}

func TestComingAndGoing(t *testing.T) {
	t.Parallel()
	h := newHall()
	const first = `{"provider":"rev","models":["a"]}`
	if err := h.say(first); err != nil || !h.isNews() || len(h.made) != 1 {
		t.Fatalf("%v, %d made", err, len(h.made))
	}
	p := h.made[0]
	if p.cfg.ID != "rev" || p.cfg.Kind != config.KindOutside || p.alive() != nil {
		t.Errorf("%+v", p.cfg)
	}
	h.clock = h.clock.Add(30 * time.Second)
	if p.alive() != nil {
		t.Error("silent too early")
	}
	if err := h.say(first); err != nil || h.isNews() || len(h.made) != 1 {
		t.Error("the same again is no news")
	}
	h.clock = h.clock.Add(announceSilence + time.Second)
	if err := p.alive(); subjects.KindOf(err) != subjects.KindProviderUnavailable || !strings.Contains(err.Error(), "for more than 30s") {
		t.Errorf("%v", err)
	}
	if len(h.list()) != 1 {
		t.Error("a silent one is forgotten at once")
	}
	if err := h.say(first); err != nil || !h.isNews() || len(h.made) != 1 || p.alive() != nil {
		t.Error("one that comes back is news, and the same")
	}
	if err := h.say(`{"provider":"rev","models":["a","b"]}`); err != nil || !h.isNews() || len(h.made) != 2 {
		t.Error("another announcement makes another provider")
	}
	h.clock = h.clock.Add(announceSilence + time.Second)
	if h.made[0].alive() == nil || h.made[1].alive() == nil {
		t.Error("the two have one life")
	}
	h.clock = h.clock.Add(forgetSilent)
	if len(h.list()) != 0 || len(h.all) != 0 {
		t.Error("one that is silent for ever is kept")
	}
}

// TestBound: the number of outside providers has a bound, and who is silent makes
// room.
func TestBound(t *testing.T) {
	t.Parallel()
	h := newHall()
	name := func(i int) string { return fmt.Sprintf(`{"provider":"p%d","models":["m"]}`, i) }
	for i := range maxOutside {
		if err := h.say(name(i)); err != nil {
			t.Fatal(err)
		}
		h.clock = h.clock.Add(time.Millisecond)
	}
	if err := h.say(name(maxOutside)); subjects.KindOf(err) != subjects.KindPoolFull {
		t.Errorf("%v", err)
	}
	h.clock = h.clock.Add(announceSilence)
	if err := h.say(name(0)); err != nil {
		t.Error(err)
	}
	if err := h.say(name(maxOutside)); err != nil || len(h.all) != maxOutside || h.all["p1"] != nil || h.all["p0"] == nil {
		t.Errorf("%v: the one that was silent for longest makes room", err)
	}
}

func TestRefusalsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	h := newHall()
	refusal := func(body string) announceReply {
		a, err := readAnnouncement([]byte(body))
		reply := make(chan announceReply, 1)
		h.receive(nil, announce{a, err, reply})
		return <-reply
	}
	const taken = `{"provider":"openai","models":["m"]}`
	if r := refusal(taken); r.err == nil || !r.first {
		t.Errorf("%+v", r)
	}
	if r := refusal(taken); r.err == nil || r.first {
		t.Errorf("%+v", r)
	}
	for i := range 3 * maxRefusals {
		refusal(fmt.Sprintf(`{"provider":"x","models":["m"],"f%d":1}`, i))
	}
	if len(h.refused) > maxRefusals || len(h.all) != 0 {
		t.Errorf("%d refusals are kept", len(h.refused))
	}
	h.make = nil
	if r := refusal(`{"provider":"x","models":["m"]}`); r.err == nil {
		t.Error("a node without outside providers takes one")
	}
}

func TestReadAnnouncement(t *testing.T) {
	t.Parallel()
	a, err := readAnnouncement([]byte(`{"provider":"my-server_2","account":"team-subscription","models":{"fast":"s","premium":"l"},
		"capabilities":["tools","streaming","tools"],"caps":{"l":1},"timeoutMs":5000,"local":null}`))
	if err != nil {
		t.Fatal(err)
	}
	c := a.cfg
	if c.ID != "my-server_2" || c.Account != "team-subscription" || c.Local() || c.Timeout != 5*time.Second || c.IdleTimeout != time.Minute ||
		fmt.Sprint(c.Models) != "map[fast:s premium:l]" || fmt.Sprint(c.AvailableModels) != "[s l]" || fmt.Sprint(c.Capabilities) != "[tools streaming]" {
		t.Errorf("%+v", c)
	}
	if a.capOf("l") != 1 || a.capOf("s") != 0 {
		t.Errorf("%v", a.caps)
	}
	a, err = readAnnouncement([]byte(`{"provider":"x","local":true,"models":["m","n","m"],"caps":7}`))
	if err != nil || a.cfg.Account != subjects.SubscriptionLocal || !a.cfg.Local() || a.cfg.Models["premium"] != "m" || len(a.cfg.AvailableModels) != 2 ||
		a.capOf("n") != 7 || a.cfg.Timeout != 2*time.Minute || a.cfg.Capabilities == nil {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestAnnouncementFaults(t *testing.T) {
	t.Parallel()
	many := strings.TrimSuffix(strings.Repeat(`"m%d",`, 65), ",")
	var ids []any
	for i := range 65 {
		ids = append(ids, i)
	}
	for body, want := range map[string]string{
		``: "must be a JSON object", `null`: "must be a JSON object", `[]`: "must be a JSON object", `{"provider":"x"`: "must be a JSON object",
		`{"models":["m"]}`:                                                           "provider: missing",
		`{"provider":"","models":["m"]}`:                                             "provider: missing",
		`{"provider":7,"models":["m"]}`:                                              "provider: must be a string",
		`{"provider":"A","models":["m"]}`:                                            `provider: "A" is no name`,
		`{"provider":"a.b","models":["m"]}`:                                          `provider: "a.b" is no name`,
		`{"provider":"` + strings.Repeat("x", 65) + `","models":["m"]}`:              "1 to 64 characters",
		`{"provider":"fast","models":["m"]}`:                                         "a meaning of its own",
		`{"provider":"local","models":["m"]}`:                                        "a meaning of its own",
		`{"provider":"all","models":["m"]}`:                                          "a meaning of its own",
		`{"provider":"x"}`:                                                           "models: must be a list",
		`{"provider":"x","models":[]}`:                                               "names no model",
		`{"provider":"x","models":{}}`:                                               "names no model",
		`{"provider":"x","models":"m"}`:                                              "must be a list of model ids",
		`{"provider":"x","models":[7]}`:                                              "must be a list of model ids",
		`{"provider":"x","models":[""]}`:                                             "an empty name",
		`{"provider":"x","models":[" m"]}`:                                           "space around it",
		`{"provider":"x","models":["a\u0007"]}`:                                      "control character",
		`{"provider":"x","models":{"fasr":"m"}}`:                                     `"fasr" is not a tier (did you mean fast?)`,
		`{"provider":"x","models":[` + fmt.Sprintf(many, ids...) + `]}`:              "has 65 models, above 64",
		`{"provider":"x","models":["m"],"account":"free"}`:                           `account: "free" is no kind of account`,
		`{"provider":"x","models":["m"],"account":"mock"}`:                           "no kind of account",
		`{"provider":"x","models":["m"],"account":"api-key","local":true}`:           "leave account out",
		`{"provider":"x","models":["m"],"local":"yes"}`:                              "local: must be true or false",
		`{"provider":"x","models":["m"],"capabilities":"tools"}`:                     "capabilities: must be a list",
		`{"provider":"x","models":["m"],"capabilities":["json_shema"]}`:              "did you mean json_schema?",
		`{"provider":"x","models":["m"],"capabilities":["logprobs"]}`:                "cannot be said on the native wire",
		`{"provider":"x","models":["m"],"caps":0}`:                                   "caps: must be a whole number",
		`{"provider":"x","models":["m"],"caps":{"n":1}}`:                             `caps: "n" is none of models (did you mean m?)`,
		`{"provider":"x","models":["m"],"caps":{"m":100001}}`:                        "caps: must be a whole number",
		`{"provider":"x","models":["m"],"caps":[1]}`:                                 "caps: must be a whole number",
		`{"provider":"x","models":["m"],"timeoutMs":0}`:                              "timeoutMs: must be a whole number",
		`{"provider":"x","models":["m"],"timeoutMs":3600001}`:                        "timeoutMs: must be a whole number",
		`{"provider":"x","models":["m"],"modles":1}`:                                 "modles: unknown field (did you mean models?)",
		`{"provider":"x","models":["` + strings.Repeat("m", maxAnnouncement) + `"]}`: "above 65536",
	} {
		_, err := readAnnouncement([]byte(body))
		if e := subjects.AsError(err); e == nil || e.Kind != subjects.KindValidation || !strings.HasPrefix(e.Message, "announcement: ") || !strings.Contains(e.Message, want) {
			t.Errorf("%.80s: %v", body, err)
		}
	}
}

// FuzzAnnouncement: what is taken is within every bound.
func FuzzAnnouncement(f *testing.F) {
	f.Add(`{"provider":"x","account":"local","local":true,"models":["m"],"capabilities":["tools"],"caps":{"m":1},"timeoutMs":1}`)
	f.Add(`{"provider":"x","models":{"fast":"m"},"caps":3}`)
	f.Fuzz(func(t *testing.T, body string) {
		a, err := readAnnouncement([]byte(body))
		if err != nil {
			if subjects.KindOf(err) != subjects.KindValidation || len(err.Error()) > 4096 {
				t.Fatalf("%v", err)
			}
			return
		}
		c := a.cfg
		if c.ID == "" || c.ID != subjects.Token(c.ID) || len(c.AvailableModels) == 0 || len(c.AvailableModels) > maxAnnouncedModels ||
			wire.Needs(c.Capabilities).Missing(wire.NativeNeeds) != 0 || c.Timeout <= 0 || c.Timeout > time.Hour || c.Account == "" {
			t.Fatalf("%+v", c)
		}
		for _, m := range c.AvailableModels {
			if n := a.capOf(m); n < 0 || n > maxAnnouncedCap || m == "" || len(m) > subjects.MaxName {
				t.Fatalf("%q %d", m, n)
			}
		}
	})
}
