package kvstore

import (
	"errors"
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

// A record that is accepted says where the tag is: what is written back says the same.
func FuzzTagRecord(f *testing.F) {
	for _, t := range []allocator.Tag{
		trend("order", 11),
		{Name: "order", MaxID: 7, Floor: 7, Deleted: true, Order: allocator.Strict, Rules: allocator.Rules{Version: 9,
			Paused: true}},
		{Name: "order", MaxID: 7, Step: 1, Order: "opaque-d9", KeyID: "k", Rules: allocator.Rules{Limit: 999_999_999}},
	} {
		data, err := encodeTag(t, 77)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, damaged := range []string{
		``, `{}`, `null`, `{"format":2,"ends":[]}`, `{"format":1,"bucket":"77","tag":"other","end":"1","step":1}`,
		`{"format":1,"bucket":"77","tag":"order","end":"1","step":1,"more":1}`,
		`{"format":1,"bucket":"77","tag":"order","end":"1","step":1}x`,
		`{"format":1,"bucket":"77","tag":"order","end":"1","floor":"2","step":1}`,
		`{"format":1,"bucket":"77","tag":"order","end":"0","step":1}`,
		`{"format":1,"bucket":"77","tag":"order","end":"1","step":0}`, `{"format":1,"tag":"order","end":"1","step":1}`,
	} {
		if _, _, err := decodeRecord("order", []byte(damaged)); !errors.Is(err, allocator.ErrDamaged) &&
			!errors.Is(err, allocator.ErrNewer) {
			f.Errorf("%s: %v", damaged, err)
		}
		f.Add([]byte(damaged))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tag, bucket, err := decodeRecord("order", data)
		if err != nil {
			if tag != (allocator.Tag{}) || !errors.Is(err, allocator.ErrDamaged) &&
				!errors.Is(err, allocator.ErrNewer) {
				t.Fatalf("%+v, %v", tag, err)
			}
			return
		}
		strict, domain := tag.Order == allocator.Strict && tag.Step == 0, tag.Order.Domain()
		if tag.MaxID < 1 || !strict && (tag.Step < 1 || tag.Order != allocator.Trend && domain == "") ||
			tag.Name != "order" || bucket == 0 ||
			(domain != "") != (tag.KeyID != "") || domain != "" && tag.Left(domain.Last()) > 1 {
			t.Fatalf("%q reads as %+v of %d", data, tag, bucket)
		}
		again, err := encodeTag(tag, bucket)
		if err != nil {
			return // a year that JSON cannot carry
		}
		back, of, err := decodeRecord("order", again)
		same := back.Updated.Equal(tag.Updated) && back.Last.Time.Equal(tag.Last.Time)
		back.Updated, back.Last.Time = tag.Updated, tag.Last.Time
		if err != nil || of != bucket || back != tag || !same {
			t.Fatalf("%s reads as %+v of %d, %v", again, back, of, err)
		}
	})
}
