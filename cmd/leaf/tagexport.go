package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
)

// exportedTag is a tag in a file for leaf tag apply.
type exportedTag struct {
	Tag         string             `yaml:"tag"`
	Order       string             `yaml:"order,omitempty"`
	Opaque      string             `yaml:"opaque,omitempty"`
	MaxID       bus.ID             `yaml:"max_id"`
	Step        int64              `yaml:"step,omitempty"`
	Description string             `yaml:"description,omitempty"`
	Quota       exportedQuota      `yaml:"quota,omitempty,flow"`
	Paused      bool               `yaml:"paused,omitempty"`
	Outlast     allocator.Duration `yaml:"outlast,omitempty"`
	Limit       bus.ID             `yaml:"limit,omitempty"`
}

type exportedQuota struct {
	PerSecond int64 `yaml:"per_second"`
	Burst     int64 `yaml:"burst"`
}

func newTagExportCmd() *cobra.Command {
	var f clientFlags
	var req admin.PageRequest
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the tags as a file for leaf tag apply",
		Long: `Write the tags as YAML, or with --json as JSON, to the standard output. leaf tag
apply takes both: edit the file and apply it, or apply it to another installation.

It is no backup: IDs that are handed out after the export are above its max_id. If
JetStream lost its state, do not apply an old file: IDs would repeat.`,
		Example: `  leaf tag export > tags.yaml
  leaf tag export --prefix shop. > shop.yaml`,
	}
	cmd.Flags().StringVar(&req.Prefix, "prefix", "", "only tags that start with `TEXT`")
	return f.command(cmd, func(cmd *cobra.Command, c *admin.Client, _ []string) error {
		tags := []admin.TagRecord{}
		unserved := 0
		err := eachPage(cmd.Context(), c, req, func(page admin.TagsPage) {
			tags = append(tags, page.Tags...)
			unserved += len(page.Unserved)
		})
		if err != nil {
			return err
		}
		if unserved > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "leaf: tags that are not served are left out: %d (`leaf tag list` shows why)\n", unserved)
		}
		if f.json {
			return printJSON(cmd.OutOrStdout(), map[string]any{"tags": tags})
		}
		enc := yaml.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent(2)
		if err := enc.Encode(map[string]any{"tags": exported(tags)}); err != nil {
			return err
		}
		return enc.Close()
	})
}

func exported(tags []admin.TagRecord) []exportedTag {
	list := make([]exportedTag, len(tags))
	for i, t := range tags {
		list[i] = exportedTag{t.Tag, t.Order, t.Opaque, t.MaxID, t.Step, t.Description, exportedQuota(t.Quota),
			t.Paused, t.Outlast, t.Limit}
	}
	return list
}
