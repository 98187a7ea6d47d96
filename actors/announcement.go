package actors

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// Bounds on an announcement.
const (
	maxAnnouncement     = 64 << 10 // bytes
	maxOutsideName      = 64       // bytes
	maxAnnouncedModels  = 64
	maxAnnouncedCap     = 100_000
	outsideTimeout      = 120 * time.Second // as that of the built-in ones
	outsideIdleTimeout  = 60 * time.Second
	subscriptionAccount = "-subscription"
)

// announcement is a valid llm.provider_announce.
type announcement struct {
	cfg *config.Provider
	// cap bounds the calls in flight of each model, caps those of one; 0 and
	// missing = the configuration's default.
	cap  int
	caps map[string]int
}

// capOf is the bound of one model's pool; 0 = the default.
func (a *announcement) capOf(model string) int {
	if n, ok := a.caps[model]; ok {
		return n
	}
	return a.cap
}

var announcementFields = []string{"provider", "account", "local", "models", "capabilities", "caps", "timeoutMs"}

// readAnnouncement reads an announcement. It is strict: what a program announces
// and this Sluice would not heed, it should hear of.
func readAnnouncement(body []byte) (*announcement, error) {
	if len(body) > maxAnnouncement {
		return nil, unfit("", "has %d bytes, above %d", len(body), maxAnnouncement)
	}
	var fields map[string]json.RawMessage
	if !wire.ValidJSON(body) || json.Unmarshal(body, &fields) != nil || fields == nil {
		return nil, unfit("", `must be a JSON object such as {"provider":"my-server","models":["my-model"]}`)
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(announcementFields, key) {
			return nil, unfit(clipName(key), "unknown field%s; the fields are %s", hint(key, announcementFields), strings.Join(announcementFields, ", "))
		}
	}
	a := &announcement{cfg: &config.Provider{Kind: config.KindOutside, Timeout: outsideTimeout, IdleTimeout: outsideIdleTimeout}}
	for _, step := range []func(map[string]json.RawMessage) error{a.readName, a.readAccount, a.readModels, a.readCapabilities, a.readCaps, a.readTimeout} {
		if err := step(fields); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// unfit makes the VALIDATION_ERROR for one field.
func unfit(field, format string, args ...any) error {
	place := "announcement: "
	if field != "" {
		place += field + ": "
	}
	return subjects.Errorf(subjects.KindValidation, place+format, args...)
}

func hint(name string, known []string) string {
	if near := subjects.Nearest(name, known); near != "" {
		return " (did you mean " + near + "?)"
	}
	return ""
}

// clipName shows what a program sent, made fit for one line.
func clipName(s string) string {
	s = strings.ToValidUTF8(s[:min(len(s), maxOutsideName)], "?")
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

// given reads a field into v; false = it is missing or null.
func given(fields map[string]json.RawMessage, key string, v any, must string) (bool, error) {
	raw, ok := fields[key]
	if !ok || string(raw) == "null" {
		return false, nil
	}
	if json.Unmarshal(raw, v) != nil {
		return false, unfit(key, "must be %s", must)
	}
	return true, nil
}

// reservedNames are words that callers, or sensitivity.allow, write in the place of a
// provider's name: as one, it would be let in where they stand.
var reservedNames = append([]string{"auto", "sluice", "any", "all", "local"}, subjects.Tiers...)

func (a *announcement) readName(fields map[string]json.RawMessage) error {
	const must = "1 to 64 characters of a-z, 0-9, - and _"
	ok, err := given(fields, "provider", &a.cfg.ID, "a string: "+must)
	id := a.cfg.ID
	switch {
	case err != nil:
		return err
	case !ok || id == "":
		return unfit("provider", "missing; it is the provider's name, "+must)
	case id != subjects.Token(id) || len(id) > maxOutsideName:
		return unfit("provider", "%q is no name for a provider: it must have "+must, clipName(id))
	case slices.Contains(reservedNames, id):
		return unfit("provider", "%q has a meaning of its own; choose another name", id)
	}
	return nil
}

func (a *announcement) readAccount(fields map[string]json.RawMessage) error {
	var local bool
	if _, err := given(fields, "local", &local, "true or false"); err != nil {
		return err
	}
	ok, err := given(fields, "account", &a.cfg.Account, "a string")
	switch acc := a.cfg.Account; {
	case err != nil:
		return err
	case !ok || acc == "":
		a.cfg.Account = subjects.SubscriptionAPIKey
		if local {
			a.cfg.Account = subjects.SubscriptionLocal
		}
	case local && acc != subjects.SubscriptionLocal:
		return unfit("account", "is %q although local is true; what runs on this side is billed to nobody: leave account out", clipName(acc))
	case acc != subjects.SubscriptionLocal && acc != subjects.SubscriptionAPIKey &&
		(!strings.HasSuffix(acc, subscriptionAccount) || acc != subjects.Token(acc) || len(acc) > maxOutsideName):
		return unfit("account", "%q is no kind of account; it is %s, %s or one that ends in %s", clipName(acc),
			subjects.SubscriptionLocal, subjects.SubscriptionAPIKey, subscriptionAccount)
	}
	return nil
}

// readModels reads {"fast": "…"} by tier, or a list whose first entry serves
// every tier.
func (a *announcement) readModels(fields map[string]json.RawMessage) error {
	const must = `a list of model ids, or an object by tier such as {"fast":"small","premium":"large"}`
	a.cfg.Models = map[string]string{}
	var list []string
	byTier := map[string]string{}
	if json.Unmarshal(fields["models"], &list) != nil {
		if ok, err := given(fields, "models", &byTier, must); err != nil || !ok {
			return unfit("models", "must be "+must)
		}
	}
	for _, tier := range slices.Sorted(maps.Keys(byTier)) {
		if !subjects.ValidTier(tier) {
			return unfit("models", "%q is not a tier%s; the tiers are %s", clipName(tier), hint(tier, subjects.Tiers), strings.Join(subjects.Tiers, ", "))
		}
		a.cfg.Models[tier] = byTier[tier]
		list = append(list, byTier[tier])
	}
	for _, id := range list {
		if id == "" || strings.TrimSpace(id) != id {
			return unfit("models", "has an empty name in it, or one with space around it")
		}
		if err := wire.CheckName("announcement: models", id, subjects.MaxName); err != nil {
			return err
		}
		if !slices.Contains(a.cfg.AvailableModels, id) {
			a.cfg.AvailableModels = append(a.cfg.AvailableModels, id)
		}
	}
	switch n := len(a.cfg.AvailableModels); {
	case n == 0:
		return unfit("models", "names no model; it is "+must)
	case n > maxAnnouncedModels:
		return unfit("models", "has %d models, above %d", n, maxAnnouncedModels)
	case len(byTier) == 0:
		for _, tier := range subjects.Tiers {
			a.cfg.Models[tier] = list[0]
		}
	}
	return nil
}

func (a *announcement) readCapabilities(fields map[string]json.RawMessage) error {
	a.cfg.Capabilities = []string{}
	var names []string
	if _, err := given(fields, "capabilities", &names, "a list of names"); err != nil {
		return err
	}
	can := wire.NativeNeeds.Names()
	for _, name := range names {
		switch {
		case !slices.Contains(subjects.Capabilities, name):
			return unfit("capabilities", "%q is not known%s; they are %s", clipName(name), hint(name, can), strings.Join(can, ", "))
		case !slices.Contains(can, name):
			return unfit("capabilities", "%s cannot be said on the native wire, by which an outside provider is asked; take it out", name)
		}
		if !slices.Contains(a.cfg.Capabilities, name) {
			a.cfg.Capabilities = append(a.cfg.Capabilities, name)
		}
	}
	return nil
}

// readCaps reads a number for each model, or an object by model.
func (a *announcement) readCaps(fields map[string]json.RawMessage) error {
	const must = `a whole number of calls at once from 1 to 100000, or an object of them by model`
	var all int
	if json.Unmarshal(fields["caps"], &all) == nil && len(fields["caps"]) > 0 && string(fields["caps"]) != "null" {
		if all < 1 || all > maxAnnouncedCap {
			return unfit("caps", "must be "+must)
		}
		a.cap = all
		return nil
	}
	if _, err := given(fields, "caps", &a.caps, must); err != nil {
		return err
	}
	for _, model := range slices.Sorted(maps.Keys(a.caps)) {
		switch n := a.caps[model]; {
		case !slices.Contains(a.cfg.AvailableModels, model):
			return unfit("caps", "%q is none of models%s", clipName(model), hint(model, a.cfg.AvailableModels))
		case n < 1 || n > maxAnnouncedCap:
			return unfit("caps", "must be "+must)
		}
	}
	return nil
}

func (a *announcement) readTimeout(fields map[string]json.RawMessage) error {
	const must = "a whole number of milliseconds from 1 to 3600000"
	var ms int64
	ok, err := given(fields, "timeoutMs", &ms, must)
	if err != nil || ok && (ms < 1 || ms > subjects.MaxTimeoutMs) {
		return unfit("timeoutMs", "must be "+must)
	}
	if ok {
		a.cfg.Timeout = time.Duration(ms) * time.Millisecond
	}
	return nil
}
