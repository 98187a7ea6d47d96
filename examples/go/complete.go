// Command complete asks Sluice one question over NATS and prints the answer.
//
//	go run ./examples/go "What is an actor?"
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-llm/sluice/subjects"
)

func main() {
	nc, err := nats.Connect(cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	req := &subjects.Request{Process: cmp.Or(os.Getenv("PROCESS"), "go-example"), Provider: os.Getenv("PROVIDER")}
	req.Messages = []subjects.Message{{Role: "user", Content: subjects.Text(strings.Join(os.Args[1:], " "))}}
	class := cmp.Or(os.Getenv("CLASS"), subjects.ClassInteractive)
	res, err := subjects.Call(ctx, subjects.NewClient(nc), class, req)
	if err != nil {
		log.Fatal(err) // a *subjects.Error: its Kind says what went wrong
	}
	fmt.Println(res.Content)
	fmt.Fprintf(os.Stderr, "%s/%s, %d tokens\n", res.Provider, res.Model, res.Usage.TotalTokens)
}
