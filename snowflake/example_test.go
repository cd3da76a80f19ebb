package snowflake_test

import (
	"fmt"
	"time"

	"github.com/leafbus/leafbus/snowflake"
)

func ExampleLayout_Decode() {
	p, err := snowflake.DefaultLayout().Decode(1541815603606036480)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(time.UnixMilli(p.UnixMS).UTC().Format(snowflake.TimeFormat), p.Worker, p.Sequence)
	// Output: 2022-06-28T16:07:40.105Z 378 0
}
