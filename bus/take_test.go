package bus

import "testing"

// What Take does beyond a bare request costs at most three allocations. The responder is the same, and it is in this
// process for both.
func TestTakeAllocations(t *testing.T) {
	take, bare := beside(t)
	const calls = 2000
	most := 3.0
	if raceEnabled {
		most = 4 // it makes sync.Pool drop one in four on purpose
	}
	count := func(call func()) float64 {
		return testing.AllocsPerRun(1, func() {
			for range calls {
				call()
			}
		}) / calls
	}
	if of, bares := count(take), count(bare); of > bares+most {
		t.Errorf("a call of Take allocates %.2f times, a bare request %.2f times: want at most %v more", of, bares, most)
	} else {
		t.Logf("a call of Take allocates %.2f times, a bare request %.2f times", of, bares)
	}
}
