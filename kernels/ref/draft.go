package ref

// DraftRows is a step of T token rows of S sequences, of which L are sampled.
type DraftRows struct {
	Ids     []int32 // [T]
	First   []int32 // [S+1]
	Rows    []int32 // [L] the token row of each sampled row
	Sampled []int32 // [L] the sampled token; −1: none
}

// none marks a token row that is not sampled.
const none = -1

// index returns for each token row the first entry of Rows with this row, or none.
func (d DraftRows) index() []int {
	at := make([]int, len(d.Ids))
	for i := range at {
		at[i] = none
	}
	for r := len(d.Rows) - 1; r >= 0; r-- {
		at[d.Rows[r]] = r
	}
	return at
}

// DraftInput sets out [T] to each token row's successor: the token sampled for it, else the
// next row of its sequence; 0 if there is neither.
func DraftInput(d DraftRows, out []int32) {
	at := d.index()
	for seq := range len(d.First) - 1 {
		for t := d.First[seq]; t < d.First[seq+1]; t++ {
			switch {
			case at[t] != none:
				out[t] = max(0, d.Sampled[at[t]])
			case t+1 < d.First[seq+1]:
				out[t] = d.Ids[t+1]
			default:
				out[t] = 0
			}
		}
	}
}

// Verify sets kept [S] to each sequence's last accepted row, −1 without rows, and accepted
// [S] to the number of accepted rows that are sampled.
func Verify(d DraftRows, kept, accepted []int32) {
	at, keep := d.index(), make([]bool, len(d.Ids))
	for seq := range len(d.First) - 1 {
		kept[seq], accepted[seq] = -1, 0
		sampled := false
		for t := d.First[seq]; t < d.First[seq+1]; t++ {
			keep[t] = at[t] == none || !sampled
			if !keep[t] && keep[t-1] && at[t-1] != none {
				keep[t] = d.Ids[t] == d.Sampled[at[t-1]]
			}
			sampled = sampled || at[t] != none
			if keep[t] {
				kept[seq] = t
			}
		}
		for _, t := range d.Rows {
			if t >= d.First[seq] && t < d.First[seq+1] && keep[t] {
				accepted[seq]++
			}
		}
	}
}

// Largest returns the first index of the largest number of x; 0 if all are NaN.
func Largest(x []float32) int32 {
	best := -1
	for i, v := range x {
		if v == v && (best < 0 || v > x[best]) {
			best = i
		}
	}
	return int32(max(0, best))
}
