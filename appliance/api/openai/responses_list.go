package openai

import (
	"encoding/json"
	"net/url"
	"slices"
	"strconv"

	"vapp.dev/appliance/chat"
)

// itemList is a page of items.
type itemList struct {
	Object  string            `json:"object"`
	Data    []json.RawMessage `json:"data"`
	FirstID *string           `json:"first_id"`
	LastID  *string           `json:"last_id"`
	HasMore bool              `json:"has_more"`
}

// ItemPage returns the body of a page of items. Parameters of the query: limit (1 to
// 100, default 20), order (desc or asc, default desc), after (an item's id). Its errors
// are *chat.Error.
func ItemPage(list []StoredItem, q url.Values) ([]byte, error) {
	limit := 20
	if v := q.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > 100 {
			return nil, chat.Errorf(chat.Invalid, "limit", "`limit` must be an integer of 1 to 100, got %q.", v)
		}
		limit = n
	}
	list = slices.Clone(list)
	switch order := q.Get("order"); order {
	case "", "desc":
		slices.Reverse(list)
	case "asc":
	default:
		return nil, chat.Errorf(chat.Invalid, "order", "`order` must be asc or desc, got %q.", order)
	}
	if after := q.Get("after"); after != "" {
		i := slices.IndexFunc(list, func(item StoredItem) bool { return item.ID == after })
		if i < 0 {
			return nil, chat.Errorf(chat.Invalid, "after", "`after` names no item of this response: %q.", after)
		}
		list = list[i+1:]
	}
	out := itemList{Object: "list", Data: []json.RawMessage{}, HasMore: len(list) > limit}
	list = list[:min(limit, len(list))]
	for _, item := range list {
		out.Data = append(out.Data, item.JSON)
	}
	if n := len(list); n > 0 {
		out.FirstID, out.LastID = &list[0].ID, &list[n-1].ID
	}
	return encode(out), nil
}

// DecodeResumption reads stream from the body of a GET request. Its errors are
// *chat.Error.
func DecodeResumption(b []byte) (stream bool, err error) {
	f, bad := body(b)
	if bad != nil {
		return false, bad
	}
	if stream = f.flag("stream", false); f.err != nil {
		return false, f.err
	}
	return stream, nil
}

// deletion is the body of a reply to DELETE.
type deletion struct {
	ID      string `json:"id"`
	Object  string `json:"object"` // response
	Deleted bool   `json:"deleted"`
}

// DeletionBody returns the body of a reply to DELETE.
func DeletionBody(id string) []byte { return encode(deletion{id, "response", true}) }

// ItemPageShape returns the shape of GET /v1/responses/{id}/input_items.
func ItemPageShape() Shape { return Shape{Reply: itemList{}} }

// DeletionShape returns the shape of DELETE /v1/responses/{id}.

func DeletionShape() Shape { return Shape{Reply: deletion{}} }
