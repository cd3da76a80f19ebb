package bus

import "time"

// Patient makes a client that never asks again: its first attempt at a request lasts as long
// as the caller waits.
func Patient(c *Client) *Client {
	c.first = time.Hour
	return c
}
