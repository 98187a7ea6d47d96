// Package conformance holds every provider to the same table of scenarios,
// against a fake of its vendor's server (internal/vendors). A new provider joins
// by one line: a Case.
//
// The scenarios are said once, apart from any wire: what is asked is a
// vendors.Seen, what is answered a vendors.Answer. Each is asked in both forms
// that callers speak (native, openai-chat), whole and as a stream, and what the
// caller reads at the other end (through wire.EncodeResponse and
// wire.StreamEncoder) is held against what the fake said, and what the fake heard
// against what was asked.
//
// What a vendor's API cannot do is not skipped in silence: a Case lists the
// capabilities that its provider lacks, and the suite holds that these, and only
// these, are not declared, that each declared one works, and that a request which
// needs another one fails instead of going out reduced.
package conformance

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-llm/sluice/internal/vendors"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// Version is what a Case's Make sets as the program's version.
const Version = "0.0.7-conformance"

// Setup is what a provider under test is made with.
type Setup struct {
	// BaseURL is the API's root: the fake's URL and the Case's BasePath.
	BaseURL string
	// Idle is the configuration's IdleTimeout.
	Idle time.Duration
	// Transport, when not nil, carries the requests.
	Transport http.RoundTripper
}

// Case is one provider.
type Case struct {
	// Make makes the provider, with the version Version. The suite closes it where
	// it has a Close.
	Make  func(t testing.TB, s Setup) providers.Provider
	Voice vendors.Voice
	// ID is the provider's name in errors.
	ID string
	// BasePath is the path of the API's root, such as "/v1".
	BasePath string
	// Model is an id as this provider's users write it.
	Model string
	// Secret is the key that Make gives the provider; "" = none.
	Secret string
	// Cannot are the capabilities that the provider does not declare.
	Cannot wire.Need
	// Refuses names the requests (of requestCases) that this model of the API is
	// known to refuse, although it has all that they need one by one: nothing is
	// sent, and the error moves the call on (PROVIDER_UNAVAILABLE with the status 422).
	Refuses []string
	// Login: the key is another program's login, which is held back once it was
	// refused.
	Login bool
	// NarrowsChoice: a choice of one tool by its name goes out as that tool alone and
	// "required", for a server that does not heed names.
	NarrowsChoice bool
	// Header lists the headers of the provider's own beside those that every
	// provider may send, canonical names.
	Header []string
	// Kinds are the errors that differ from the table, each with a reason beside it.
	Kinds map[vendors.Fault]subjects.Kind
}

// every is all that there is to need.
const every = wire.NeedTools | wire.NeedImages | wire.NeedDocuments | wire.NeedAudio | wire.NeedJSONMode |
	wire.NeedJSONSchema | wire.NeedChoices | wire.NeedLogProbs | wire.NeedStreaming | wire.NeedImageURLs |
	wire.NeedToolChoice | wire.NeedOpenAIChat

// Run runs the suite. The scenarios run one after the other, and no goroutine may
// be left when they are through.
func Run(t *testing.T, c Case) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	for _, s := range []struct {
		name string
		run  func(*testing.T, *Case)
	}{
		{"ready", ready},
		{"answers", answers},
		{"requests", requests},
		{"steering", steering},
		{"capabilities", capabilities},
		{"faults", faults},
		{"errors in a success", errorsInSuccess},
		{"errors in a stream", errorsInStream},
		{"broken answers", brokenAnswers},
		{"cut connections", cutConnections},
		{"every cut of a stream", everyCut},
		{"framings", framings},
		{"sizes", sizes},
		{"cancelled", cancelled},
		{"silence", silence},
		{"side by side", sideBySide},
		{"who asks", whoAsks},
	} {
		t.Run(s.name, func(t *testing.T) { s.run(t, &c) })
	}
	goleak.VerifyNone(t, before)
}

func (c *Case) can(n wire.Need) bool { return c.Cannot&n == 0 }

func (c *Case) can1(f vendors.Fault) bool {
	_, _, _, ok := c.Voice.Fault(&vendors.Seen{Model: c.Model}, f)
	return ok || f >= vendors.HTMLPage
}

func (c *Case) finishes(word string) bool { return slices.Contains(c.Voice.Traits().Finishes, word) }

// room is one fake and one provider that asks it.
type room struct {
	*vendors.Server

	t *testing.T
	c *Case
	p providers.Provider
}

// longIdle never passes in a test.
const longIdle = time.Hour

func open(t *testing.T, c *Case) *room { return openIdle(t, c, longIdle) }

func openIdle(t *testing.T, c *Case, idle time.Duration) *room {
	t.Helper()
	return (&room{Server: vendors.New(t, c.Voice), t: t, c: c}).start(idle, nil)
}

// openPipe is for synctest: no socket in it.
func openPipe(t *testing.T, c *Case, idle time.Duration) *room {
	t.Helper()
	s, transport := vendors.NewPipe(t, c.Voice)
	return (&room{Server: s, t: t, c: c}).start(idle, transport)
}

func (r *room) start(idle time.Duration, transport http.RoundTripper) *room {
	r.p = r.c.Make(r.t, Setup{BaseURL: r.URL + r.c.BasePath, Idle: idle, Transport: transport})
	r.t.Cleanup(func() {
		if closer, ok := r.p.(interface{ Close() }); ok {
			closer.Close()
		}
	})
	return r
}
