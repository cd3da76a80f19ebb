package bus

import "time"

// Patient makes a client that asks again only when its callers have waited for long.
func Patient(c *Client) *Client {
	NoHedging()(c)
	Timeout(time.Hour)(c)
	return c
}
