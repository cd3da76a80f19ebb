package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/cli"
)

func newTagCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tag",
		Short: "Create, list and change tags",
		Long: `Create, list and change tags. A tag is a sequence of IDs with a name. Create
one for each kind of thing that you number, for example order and invoice.`,
		Example: `  leaf tag add order --step 1000 --description 'orders of the shop'
  leaf tag list
  leaf tag set order --max-id 5000000
  leaf tag pause order`,
	}
	cmd.AddCommand(newTagAddCmd(), newTagListCmd(), newTagShowCmd(), newTagSetCmd(),
		newTagSwitchCmd("pause", "paused", true, "Pause a tag: requests for it are refused with the reason paused, "+
			"until \"leaf tag resume\"."),
		newTagSwitchCmd("resume", "resumed", false, "Let a paused tag go on. It changes nothing if the tag is not "+
			"paused."),
		newTagAdvanceCmd(), newTagRevealCmd(), newTagRmCmd(), newTagApplyCmd(), newTagExportCmd())
	return cmd
}

// tagCommand completes cmd, which asks about the tag in its argument, or changes it. It prints the record, or what done
// makes of its name and max_id.
func tagCommand(
	f *cli.Client, cmd *cobra.Command, done string, ask func(*cli.Session, string) (admin.TagRecord, error),
) *cobra.Command {
	return f.Command(cmd, func(s *cli.Session, args []string) error {
		t, err := ask(s, args[0])
		if err != nil {
			return err
		}
		warnUnheard(s, t.Unheard)
		return s.Print(t, func(w io.Writer) error {
			if done == "" {
				return printTags(w, t)
			}
			_, err := fmt.Fprintf(w, done, t.Tag, t.MaxID)
			return err
		})
	})
}

func newTagListCmd() *cobra.Command {
	var f cli.Client
	var req admin.PageRequest
	cmd := f.Command(&cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the tags and how far they are",
		Long: `List the tags and how far they are, sorted by name. OPAQUE is the domain of an opaque
tag, whose MAX_ID is a number and no ID.`,
		Example: `  leaf tag list
  leaf tag list --prefix shop. --json
  leaf tag list --contains refund`,
	}, func(s *cli.Session, _ []string) error {
		all, err := allTags(s.Context(), s.Admin, req)
		if err != nil {
			return err
		}
		return s.Print(all, func(w io.Writer) error {
			for _, t := range all.Unserved {
				t.Description = "NOT SERVED: " + t.Problem
				all.Tags = append(all.Tags, t.TagRecord)
			}
			return printTags(w, all.Tags...)
		})
	})
	cmd.Flags().StringVar(&req.Prefix, "prefix", "", "only tags that start with `TEXT`")
	cmd.Flags().StringVar(&req.Contains, "contains", "", "only tags with `TEXT` anywhere in the name; upper and "+
		"lower case differ")
	return cmd
}

func newTagShowCmd() *cobra.Command {
	var f cli.Client
	return tagCommand(&f, &cobra.Command{
		Use:     "show TAG",
		Aliases: []string{"info"},
		Short:   "Show a tag",
		Example: `  leaf tag show order
  leaf tag show order --json`,
		ValidArgsFunction: f.CompleteTags(1),
	}, "", func(s *cli.Session, tag string) (admin.TagRecord, error) { return s.Admin.Tag(s.Context(), tag) })
}

func newTagSwitchCmd(verb, done string, paused bool, long string) *cobra.Command {
	var f cli.Client
	return tagCommand(&f, &cobra.Command{
		Use:               verb + " TAG",
		Short:             strings.ToUpper(verb[:1]) + verb[1:] + " a tag",
		Long:              long,
		Example:           "  leaf tag " + verb + " order",
		ValidArgsFunction: f.CompleteTags(1),
	}, done+" %s; it is at %d\n", func(s *cli.Session, tag string) (admin.TagRecord, error) {
		change := idspace.RulesChange{Paused: &paused}
		return s.Admin.UpdateTag(s.Context(), admin.TagSpec{Tag: tag, RulesChange: change})
	})
}
