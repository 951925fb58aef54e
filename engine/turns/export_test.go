package turns

// Waiting returns how many seats wait for a turn.
func Waiting(d *Device) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiting)
}
