package edge

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/subjects"
)

// health passes the node's state on; 503 when it can serve nobody, as when
// nobody is there to be asked.
func (x *exchange) health() {
	reply, err := x.query(subjects.QueryHealth, nil)
	if err != nil {
		body, _ := json.Marshal(subjects.Health{
			Status: "degraded", Reasons: []string{subjects.AsError(err).Message}, Version: x.s.o.Version,
			Providers: map[string]subjects.ProviderHealth{}, Pools: map[string]subjects.PoolHealth{},
			Classes: map[string]subjects.ClassHealth{},
		})
		x.send(http.StatusServiceUnavailable, typeJSON, body)
		return
	}
	status := http.StatusOK
	if !gjson.GetBytes(reply.Data, "canServe").Bool() {
		status = http.StatusServiceUnavailable
	}
	x.send(status, typeJSON, reply.Data)
}

func (x *exchange) usageSummary() {
	p := params(x.r.URL.RawQuery, "hours", "bucketMinutes")
	q := subjects.UsageQuery{Hours: p.number("hours", 24*3660), BucketMinutes: p.number("bucketMinutes", 44_640)}
	x.passQuery(subjects.QueryUsageSummary, q, p.err)
}

func (x *exchange) usageRecent() {
	p := params(x.r.URL.RawQuery, "limit")
	q := subjects.RecentQuery{Limit: p.number("limit", subjects.MaxRecent)}
	x.passQuery(subjects.QueryUsageRecent, q, p.err)
}

func (x *exchange) resolve() {
	p := params(x.r.URL.RawQuery, "task", "tier", "process", "class", "provider", "model", "privacy", "sensitivity",
		"tools", "needs", "forcePaid", "runId", "batchId")
	q := subjects.RouteQuery{
		Task: p.text("task"), Tier: p.text("tier"), Process: p.text("process"), Class: p.text("class"),
		Provider: p.text("provider"), Model: p.text("model"),
		Privacy: p.text("privacy"), Sensitivity: p.text("sensitivity"),
		Tools: p.flag("tools"), Needs: p.list("needs"), ForcePaid: p.flag("forcePaid"),
		RunID: p.text("runId"), BatchID: p.text("batchId"),
	}
	x.passQuery(subjects.QueryRoute, q, p.err)
}

// passQuery puts a query and passes its answer on as it is.
func (x *exchange) passQuery(subject string, query any, bad *subjects.Error) {
	if bad != nil {
		x.fail(bad)
		return
	}
	body, err := json.Marshal(query)
	if err != nil {
		x.fail(subjects.AsError(err))
		return
	}
	if reply, ok := x.ask(subject, body); ok {
		x.send(http.StatusOK, typeJSON, reply.Data)
	}
}

// query parameters, read strictly; err is the first fault. A mistyped name is
// refused, for its silence would be an answer to another question.
type query struct {
	values url.Values
	err    *subjects.Error
}

func params(raw string, known ...string) *query {
	values, err := url.ParseQuery(raw)
	q := &query{values: values}
	if err != nil {
		q.refuse("query: not well-formed")
		return q
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		// "_" is what browsers' libraries add against caches.
		if name != "_" && !slices.Contains(known, name) {
			q.refuse("query: %q is not known here; known are %s", clip(name), strings.Join(known, ", "))
		}
	}
	return q
}

func (q *query) refuse(format string, args ...any) {
	if q.err == nil {
		q.err = subjects.Errorf(subjects.KindValidation, format, args...)
	}
}

func (q *query) text(name string) string {
	v := q.values.Get(name)
	if len(v) > subjects.MaxName {
		q.refuse("%s: %d bytes, above %d", name, len(v), subjects.MaxName)
	}
	return v
}

// list reads names with commas between them; the parameter may be given again.
func (q *query) list(name string) []string {
	var names []string
	for _, v := range q.values[name] {
		if len(v) > subjects.MaxName {
			q.refuse("%s: %d bytes, above %d", name, len(v), subjects.MaxName)
			return nil
		}
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" {
				names = append(names, part)
			}
		}
	}
	return names
}

func (q *query) number(name string, most int) int {
	v := q.values.Get(name)
	if v == "" {
		return 0
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > most {
		q.refuse("%s: %q is no whole number from 1 to %d", name, clip(v), most)
	}
	return n
}

func (q *query) flag(name string) bool {
	v := q.values.Get(name)
	if v == "" {
		return false
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		q.refuse("%s: %q is neither true nor false", name, clip(v))
	}
	return b
}

// openAIModel is one model as OpenAI lists it. When it was made is not known.
type openAIModel struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

type openAIModels struct {
	Object string        `json:"object"`
	Data   []openAIModel `json:"data"`
}

func (x *exchange) models() {
	if list, ok := x.listModels(); ok {
		x.sendJSON(openAIModels{"list", list})
	}
}

// model answers for one id, which may have slashes in it.
func (x *exchange) model() {
	list, ok := x.listModels()
	if !ok {
		return
	}
	id := strings.TrimPrefix(x.r.URL.Path, modelPrefix)
	for _, m := range list {
		if m.ID == id {
			x.sendJSON(m)
			return
		}
	}
	x.fail(refusal(http.StatusNotFound, "the model %q does not exist; GET /v1/models lists them", clip(id)))
}

func (x *exchange) listModels() ([]openAIModel, bool) {
	reply, ok := x.ask(subjects.QueryModels, nil)
	if !ok {
		return nil, false
	}
	var in subjects.ModelsReply
	if err := json.Unmarshal(reply.Data, &in); err != nil {
		x.fail(subjects.Errorf(subjects.KindProvider, "the answer to %s is not what this version knows", subjects.QueryModels).WithCause(err))
		return nil, false
	}
	list := make([]openAIModel, 0, len(in.Models))
	for _, m := range in.Models {
		list = append(list, openAIModel{m.ID, "model", 0, m.Provider})
	}
	return list, true
}

func (x *exchange) sendJSON(v any) {
	body, err := json.Marshal(v)
	if err != nil {
		x.fail(subjects.AsError(err))
		return
	}
	x.send(http.StatusOK, typeJSON, body)
}
