package main

import (
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/bus/admin"
)

const (
	// completionTimeout is how long a shell waits for names.
	completionTimeout = time.Second
	// mostNames is more than a person reads.
	mostNames = 100
)

// completeTags completes the tag that is a command's one argument.
func completeTags(conn *connFlags) cobra.CompletionFunc { return completeUpTo(1, conn) }

// completeUpTo completes the tags that are a command's arguments, most of them, from the running
// installation. It hides errors and offers nothing then, because a person is typing.
func completeUpTo(most int, conn *connFlags) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		const directive = cobra.ShellCompDirectiveNoFileComp
		if len(args) >= most || configure(cmd) != nil { // cobra does not call configure here
			return nil, directive
		}
		conn.timeout = min(conn.timeout, completionTimeout)
		found := make(chan []string, 1)
		go func() { // connecting may take longer, and has no context
			var names []string
			_ = conn.withClient(cmd, func(c *admin.Client) error {
				page, err := c.Tags(cmd.Context(), admin.PageRequest{Prefix: prefix, Limit: mostNames})
				for _, t := range page.Tags {
					if !slices.Contains(args, t.Tag) {
						names = append(names, t.Tag)
					}
				}
				return err
			})
			found <- names
		}()
		select {
		case names := <-found:
			return names, directive
		case <-time.After(completionTimeout):
			return nil, directive
		}
	}
}

// completeValues completes a flag that has a few values. A value's explanation may follow it, after a tab.
func completeValues(cmd *cobra.Command, flag string, values ...string) {
	complete(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// completeFiles completes the flags whose usage names a FILE or a DIR.
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
