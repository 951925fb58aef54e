package load

import (
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"sync"

	"vapp.dev/engine/vision"
)

// cache keeps items by the data and options that they were made from, and by the clients'
// names. The least recently used leave first.
type cache struct {
	mu    sync.Mutex
	most  int64
	bytes int64
	order *list.List // of *kept, the most recently used first
	byKey map[[32]byte]*list.Element
	names map[string]*list.Element
}

type kept struct {
	*item
	names []string
}

// newCache returns a cache that keeps nothing until bound says how much.
func newCache() *cache {
	return &cache{order: list.New(), byKey: map[[32]byte]*list.Element{}, names: map[string]*list.Element{}}
}

// keyOf returns the key of an item's data, of one or several files, under the options of its request.
func keyOf(options string, data ...[]byte) [32]byte {
	h := sha256.New()
	for _, d := range append([][]byte{[]byte(options)}, data...) {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(d))))
		h.Write(d)
	}
	return [32]byte(h.Sum(nil))
}

// hashOf returns the hash of the encoder's input.
func hashOf(p *vision.Patches) [32]byte {
	h := sha256.New()
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(p.Across)))
	for i := range p.Across {
		b = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, uint32(p.Across[i])), uint32(p.Down[i]))
	}
	for _, x := range p.Colours {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	h.Write(b)
	h.Write(p.Pixels)
	return [32]byte(h.Sum(nil))
}

// data returns the item with a key, nil if it is not kept.
func (c *cache) data(key [32]byte) *item {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.use(c.byKey[key])
}

// named returns the item that a client named, nil if it is not kept.
func (c *cache) named(name, options string) *item {
	if name == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.use(c.names[options+"\x00"+name])
}

func (c *cache) use(e *list.Element) *item {
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*kept).item
}

// add keeps an item.
func (c *cache) add(p *item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[p.key] != nil || p.bytes() > c.most {
		return
	}
	c.bytes += p.bytes()
	c.byKey[p.key] = c.order.PushFront(&kept{item: p})
	c.shrink()
}

// bound sets the most bytes that are kept.
func (c *cache) bound(most int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most = most
	c.shrink()
}

// shrink removes items until the rest is within the bound. The caller holds mu.
func (c *cache) shrink() {
	for c.bytes > c.most {
		last := c.order.Back()
		k := last.Value.(*kept)
		c.order.Remove(last)
		c.bytes -= k.bytes()
		delete(c.byKey, k.key)
		for _, name := range k.names {
			if c.names[name] == last {
				delete(c.names, name)
			}
		}
	}
}

// maxNames bounds the names of one item.
const maxNames = 16

// name gives a kept item a client's name.
func (c *cache) name(name, options string, p *item) {
	if name == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byKey[p.key]
	if e == nil {
		return
	}
	k, full := e.Value.(*kept), options+"\x00"+name
	if c.names[full] != e && len(k.names) < maxNames {
		c.names[full], k.names = e, append(k.names, full)
	}
}
