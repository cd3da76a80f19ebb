package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/bus"
)

const (
	// completionTimeout is how long a shell waits for names.
	completionTimeout = time.Second
	// mostNames is more than anybody reads.
	mostNames = 100
)

// completeTags completes the tag that is a command's one argument, from the
// running installation. Where that cannot be asked there is nothing to choose
// from: somebody who types wants no error.
func completeTags(conn *connFlags) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		const directive = cobra.ShellCompDirectiveNoFileComp
		if len(args) > 0 || configure(cmd, nil) != nil { // which nobody has called for this command
			return nil, directive
		}
		conn.timeout = min(conn.timeout, completionTimeout)
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		found := make(chan []string, 1)
		go func() { found <- tagNames(ctx, cmd, conn, prefix) }() // connecting may take longer, and knows no context
		select {
		case names := <-found:
			return names, directive
		case <-ctx.Done():
			return nil, directive
		}
	}
}

// tagNames are the first tags that begin with the prefix.
func tagNames(ctx context.Context, cmd *cobra.Command, conn *connFlags, prefix string) []string {
	nc, err := conn.connectClient(cmd)
	if err != nil {
		return nil
	}
	defer nc.Close()
	page, err := bus.NewClient(nc).Tags(ctx, bus.PageRequest{Prefix: prefix, Limit: mostNames})
	if err != nil {
		return nil
	}
	var names []string
	for _, t := range page.Tags {
		names = append(names, t.Tag)
	}
	return names
}

// completeValues completes a flag that has a few values, each with what it means
// behind a tab, if that is to be said.
func completeValues(cmd *cobra.Command, flag string, values ...string) {
	complete(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// completeFiles completes the flags whose value is a FILE or a DIR, as their
// usage says.
func completeFiles(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		switch value, _ := pflag.UnquoteUsage(f); value {
		case "FILE":
			complete(cmd, f.Name, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault))
		case "DIR":
			complete(cmd, f.Name, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs))
		}
	})
}

func complete(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // there is no such flag, or it is registered already
	}
}
