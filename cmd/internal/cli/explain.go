package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/sluice-llm/sluice/subjects"
)

// explainCmd asks for a routing decision.
type explainCmd struct {
	Task     string `placeholder:"NAME" help:"Name of the task."`
	Tier     string `placeholder:"TIER" help:"fast, standard or premium."`
	Process  string `placeholder:"NAME" help:"Who would be calling."`
	Provider string `placeholder:"ID" help:"Account asked for."`
	Model    string `placeholder:"MODEL" help:"Model asked for."`
	Privacy  string `placeholder:"WHERE" help:"local = local runners only."`
	Tools    bool   `help:"The job needs tools."`
	JSON     bool   `help:"Print the node's answer as JSON."`
	clientFlags
}

// Help implements kong.HelpProvider.
func (*explainCmd) Help() string {
	return `The node decides exactly as it would for a call, and calls nobody.

Examples:

    sluice explain --task git_history_analysis
    sluice explain --tier premium --tools
    sluice explain --model groq/openai/gpt-oss-120b --json`
}

// Run asks and prints.
func (c *explainCmd) Run(ctx context.Context, a *app) error {
	a.json = c.JSON
	q := subjects.RouteQuery{
		Task: c.Task, Tier: c.Tier, Process: c.Process, Provider: c.Provider,
		Model: c.Model, Privacy: c.Privacy, Tools: c.Tools,
	}
	var r subjects.Route
	if err := c.ask(ctx, a, "explain", subjects.QueryRoute, &q, &r); err != nil || c.JSON {
		return err
	}
	fmt.Fprintln(a.out, a.out.paint(bold, safe(r.Summary)))
	if len(r.Chain) == 0 {
		fmt.Fprintln(a.out, a.out.paint(red, "nobody can serve this"))
	} else {
		t := &table{columns: []column{{right: true}, {title: "PROVIDER"}, {title: "MODEL"}}}
		for i, k := range r.Chain {
			t.add(texts(strconv.Itoa(i+1), k.Provider, k.Model)...)
		}
		a.printLines(t.lines(a.out)...)
	}
	if len(r.Skipped) > 0 {
		fmt.Fprintln(a.out)
		t := &table{columns: []column{{title: "LEFT OUT"}, {title: "WHY"}, {title: "DETAIL"}}}
		for _, s := range r.Skipped {
			t.add(texts(s.Provider, s.Reason, s.Detail)...)
		}
		a.printLines(t.lines(a.out)...)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(a.out, "%s %s\n", a.out.paint(yellow, "note:"), safe(n))
	}
	return nil
}
