package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

// explainCmd asks for a routing decision.
type explainCmd struct {
	Task        string   `placeholder:"NAME" help:"Name of the task."`
	Tier        string   `placeholder:"TIER" help:"How hard it is: fast, standard or premium."`
	Process     string   `placeholder:"NAME" help:"Who would be calling."`
	Provider    string   `placeholder:"ID" help:"Account asked for."`
	Model       string   `placeholder:"MODEL" help:"Model asked for."`
	Class       string   `placeholder:"CLASS" help:"Who is waiting: interactive or ingestion; by process otherwise."`
	Tools       bool     `help:"The job needs tools."`
	Needs       []string `placeholder:"WHAT" help:"What else it needs, with commas between: images, documents, json_schema, ..."`
	Privacy     string   `placeholder:"WHERE" help:"local = local providers only."`
	Sensitivity string   `placeholder:"HOW" help:"As if the content were classified so: public, internal or confidential."`
	RunID       string   `name:"run" placeholder:"ID" help:"Run whose cost limit applies."`
	BatchID     string   `name:"batch" placeholder:"ID" help:"Batch whose limits apply."`
	Paid        bool     `help:"Leave the subscriptions out (forcePaid)."`
	JSON        bool     `help:"Print the node's answer as JSON."`
	clientFlags
}

// Help implements kong.HelpProvider.
func (*explainCmd) Help() string {
	return `The node decides exactly as it would for a call, and calls nobody. What is left out now is shown with the reason, and with the time at which it is tried again where that is known.

Examples:

    sluice explain --task git_history_analysis
    sluice explain --tier premium --tools --needs images,json_schema
    sluice explain --process nightly --run r-2026-12-01 --sensitivity confidential
    sluice explain --model groq/openai/gpt-oss-120b --json`
}

// Validate implements kong's validation.
func (c *explainCmd) Validate() error {
	for _, need := range c.Needs {
		if err := oneOf("--needs", need, subjects.Capabilities); err != nil {
			return err
		}
	}
	return errors.Join(oneOf("--tier", c.Tier, subjects.Tiers), oneOf("--class", c.Class, subjects.Classes),
		oneOf("--privacy", c.Privacy, []string{"local", "any"}), oneOf("--sensitivity", c.Sensitivity, config.Sensitivities))
}

// oneOf refuses a flag's value that is none of those allowed; "" = not given.
func oneOf(flag, value string, allowed []string) error {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	hint := ""
	if near := subjects.Nearest(value, allowed); near != "" {
		hint = "; did you mean " + near + "?"
	}
	last := len(allowed) - 1
	return usagef("%s must be %s or %s, not %q%s", flag, strings.Join(allowed[:last], ", "), allowed[last], value, hint)
}

// Run asks and prints.
func (c *explainCmd) Run(ctx context.Context, a *app) error {
	a.json = c.JSON
	q := subjects.RouteQuery{
		Task: c.Task, Tier: c.Tier, Process: c.Process, Provider: c.Provider, Model: c.Model,
		Class: c.Class, Tools: c.Tools, Needs: c.Needs, Privacy: c.Privacy, Sensitivity: c.Sensitivity,
		RunID: c.RunID, BatchID: c.BatchID, ForcePaid: c.Paid,
	}
	var r subjects.Route
	if err := c.ask(ctx, a, "explain", subjects.QueryRoute, &q, &r); err != nil || c.JSON {
		return err
	}
	a.printRoute(&r)
	return nil
}

func (a *app) printRoute(r *subjects.Route) {
	fmt.Fprintln(a.out, a.out.paint(bold, safe(r.Summary)))
	facts := "class " + r.Class
	if r.Sensitivity != "" {
		facts += " · sensitivity " + r.Sensitivity
	}
	fmt.Fprintln(a.out, a.out.paint(dim, safe(facts)))
	switch {
	case len(r.Chain) > 0:
		t := &table{columns: []column{{right: true}, {title: "PROVIDER"}, {title: "MODEL"}}}
		for i, k := range r.Chain {
			t.add(texts(strconv.Itoa(i+1), k.Provider, k.Model)...)
		}
		a.printLines(t.lines(a.out)...)
	case r.RetryAt != nil:
		fmt.Fprintln(a.out, a.out.paint(red, "nobody can serve this now; trying again makes sense at "+a.when(r.RetryAt)))
	default:
		fmt.Fprintln(a.out, a.out.paint(red, "nobody can serve this"))
	}
	if len(r.Skipped) > 0 {
		fmt.Fprintln(a.out)
		t := &table{columns: []column{{title: "LEFT OUT"}, {title: "WHY"}, {title: "TRIED AGAIN", fixed: true}, {title: "DETAIL"}}}
		for _, s := range r.Skipped {
			t.add(texts(s.Provider, s.Reason, a.when(s.RetryAt), s.Detail)...)
		}
		a.printLines(t.lines(a.out)...)
	}
	a.notes(r.Notes)
}
