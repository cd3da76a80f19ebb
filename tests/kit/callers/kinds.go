package callers

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/tests/kit"
)

func (c *Callers) connect(url string) *nats.Conn {
	c.tb.Helper()
	return kit.Connect(c.tb, url, c.cfg.Options...)
}

// Raw adds a caller that knows nothing but NATS. It does not try again.
func (c *Callers) Raw(url string) *Callers {
	c.tb.Helper()
	nc := c.connect(url)
	return c.add("raw", false, func(ctx context.Context, tag string, n int64) ([]bus.Range, error) {
		return c.request(ctx, nc, tag, fmt.Sprint(n), wire.ParseReply)
	})
}

// RawJSON is [Callers.Raw] with requests and replies in JSON.
func (c *Callers) RawJSON(url string) *Callers {
	c.tb.Helper()
	nc := c.connect(url)
	return c.add("raw JSON", false, func(ctx context.Context, tag string, n int64) ([]bus.Range, error) {
		return c.request(ctx, nc, tag, fmt.Sprintf(`{"count":%d}`, n), parseJSON)
	})
}

func (c *Callers) request(
	ctx context.Context, nc *nats.Conn, tag, body string, parse func([]byte) ([]bus.Range, error),
) ([]bus.Range, error) {
	subject := wire.SubjectSegment + "." + tag
	if tag == Snowflakes {
		subject = wire.SubjectSnowflake
	}
	msg, err := nc.RequestWithContext(ctx, subject, []byte(body))
	if err == nil {
		err = bus.ReplyError(msg)
	}
	if err != nil {
		return nil, err
	}
	return parse(msg.Data)
}

func parseJSON(body []byte) (ranges []bus.Range, err error) {
	var reply struct {
		Ranges []struct{ First, Last bus.ID }
	}
	err = json.Unmarshal(body, &reply)
	for _, r := range reply.Ranges {
		ranges = append(ranges, bus.Range{First: int64(r.First), Last: int64(r.Last)})
	}
	return ranges, err
}

func (c *Callers) client(url string) *bus.Client {
	c.tb.Helper()
	return bus.NewClient(c.connect(url))
}

// Take adds a caller that takes batches with the Go client.
func (c *Callers) Take(url string) *Callers {
	c.tb.Helper()
	client := c.client(url)
	return c.add("Take", false, func(ctx context.Context, tag string, n int64) ([]bus.Range, error) {
		if tag == Snowflakes {
			return client.Snowflakes(ctx, n)
		}
		return client.Take(ctx, tag, n)
	})
}

// Next adds two callers that share a client, and so its requests for single IDs.
func (c *Callers) Next(url string) *Callers {
	c.tb.Helper()
	client := c.client(url)
	for range 2 {
		c.add("Next", false, func(ctx context.Context, tag string, _ int64) ([]bus.Range, error) {
			if tag == Snowflakes {
				return single(client.NextSnowflake(ctx))
			}
			return single(client.Next(ctx, tag))
		})
	}
	return c
}

func single(id int64, err error) ([]bus.Range, error) {
	if err != nil {
		return nil, err
	}
	return []bus.Range{{First: id, Last: id}}, nil
}

// Pool adds a caller that keeps IDs ready. A strict tag refuses it.
func (c *Callers) Pool(url string) *Callers {
	c.tb.Helper()
	client, pools := c.client(url), make(map[string]*bus.Pool)
	for _, tag := range c.cfg.Tags {
		pool, err := client.Pool(tag)
		if tag == Snowflakes {
			pool, err = client.SnowflakePool()
		}
		kit.Must(c.tb, err)
		c.tb.Cleanup(func() { pool.Close() })
		pools[tag] = pool
	}
	return c.add("Pool", true, func(ctx context.Context, tag string, _ int64) ([]bus.Range, error) {
		return single(pools[tag].Next(ctx))
	})
}

// Bulk adds a caller that reads many IDs as an import does: some requests at once, of a strict tag one. Each range
// counts as a call that was sent when the range before the last one had come.
func (c *Callers) Bulk(url string) *Callers {
	c.tb.Helper()
	client, parallel := c.client(url), 2
	if len(c.cfg.Strict) > 0 {
		parallel = 1
	}
	return c.add("bulk", true, func(ctx context.Context, tag string, n int64) ([]bus.Range, error) {
		all := client.Ranges(ctx, tag, 3*n, bus.Batch(n), bus.Parallel(parallel))
		if tag == Snowflakes {
			all = client.SnowflakeRanges(ctx, 3*n, bus.Batch(n), bus.Parallel(parallel))
		}
		sent, arrived := time.Now(), time.Now()
		for r, err := range all {
			if err != nil {
				return nil, err
			}
			c.record(Call{Kind: "bulk", Tag: tag, Ahead: true, Sent: sent, Ended: time.Now(), Ranges: []bus.Range{r}})
			sent, arrived = arrived, time.Now()
		}
		return nil, nil
	})
}

// HTTP adds a caller of Leaf's API that asks these addresses in turn.
func (c *Callers) HTTP(addresses ...string) *Callers {
	var turn atomic.Int64
	return c.add("HTTP", false, func(ctx context.Context, tag string, n int64) ([]bus.Range, error) {
		path := "/api/segment/get/" + tag
		if tag == Snowflakes {
			path = "/api/snowflake/get/any"
		}
		address := addresses[turn.Add(1)%int64(len(addresses))]
		r, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("%s%s?count=%d", address, path, n), nil)
		if err != nil {
			return nil, err
		}
		if c.cfg.Token != "" {
			r.Header.Set("Authorization", "Bearer "+c.cfg.Token)
		}
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			return nil, err
		}
		if reason := answer.Header.Get("Leaf-Error-Reason"); reason != "" {
			return nil, fmt.Errorf("HTTP %d: %w", answer.StatusCode, bus.Reason(reason))
		}
		if answer.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("HTTP %d: %s", answer.StatusCode, body)
		}
		return wire.ParseReply(body)
	})
}

// All adds one caller of each kind that all tags allow, at the NATS of url and, if there are any, at addresses of HTTP.
func (c *Callers) All(url string, addresses ...string) *Callers {
	c.tb.Helper()
	c.Raw(url).RawJSON(url).Take(url).Next(url).Bulk(url)
	if len(c.cfg.Strict) == 0 {
		c.Pool(url)
	}
	if len(addresses) > 0 {
		c.HTTP(addresses...)
	}
	return c
}
