package kv

// none is no page, no slab, no class.
const none = -1

// link holds an index's neighbours in a list.
type link struct{ prev, next int32 }

// list is a doubly linked list of indices. Its links are in a separate array, so that lists of
// disjoint sets can share one.
type list struct{ head, tail int32 }

var empty = list{none, none}

func (l *list) push(links []link, i int32) {
	links[i] = link{l.tail, none}
	if l.tail == none {
		l.head = i
	} else {
		links[l.tail].next = i
	}
	l.tail = i
}

func (l *list) remove(links []link, i int32) {
	at := links[i]
	if at.prev == none {
		l.head = at.next
	} else {
		links[at.prev].next = at.next
	}
	if at.next == none {
		l.tail = at.prev
	} else {
		links[at.next].prev = at.prev
	}
	links[i] = link{none, none}
}
