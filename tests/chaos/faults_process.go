package main

import "time"

// processFaults strike single processes.
var processFaults = []*fault{
	{
		name: "kill", about: "kill -9 of a generator, which comes back after up to 10 s", weight: 4,
		strike: func(s *strike) {
			m := s.machine()
			m.kill()
			s.last(0, 10*time.Second)
			m.start()
		},
	},
	{
		name: "freeze", about: "SIGSTOP of a generator for up to 10 s", weight: 4,
		strike: func(s *strike) {
			m := s.machine()
			if m.freeze() {
				s.last(time.Second, 10*time.Second)
				m.thaw()
			}
		},
	},
	{
		name: "restart", about: "SIGTERM of a generator, which is started again at once", weight: 2,
		strike: func(s *strike) {
			m := s.machine()
			m.stop()
			m.start()
			s.last(0, 3*time.Second)
		},
	},
}
