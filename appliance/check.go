package appliance

// CheckStart returns why a server of this plan cannot be started on this machine now; nil if it
// can. It opens no device.
func (p *Prepared) CheckStart() error { return p.startable() }
