package cli

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A signal that timeout(1) sends twice ends nothing at once. A second one does.
func TestSecondSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, ended := make(chan os.Signal), make(chan bool)
		go func() { awaitSecond(signals); close(ended) }()
		signals <- syscall.SIGTERM
		synctest.Wait()
		select {
		case <-ended:
			t.Error("the same signal counts as a second one")
		default:
		}
		time.Sleep(oneSignal)
		signals <- syscall.SIGTERM
		<-ended
	})
}
