package ref

// DraftRows is a step of T token rows of S sequences, of which L are sampled.
type DraftRows struct {
	Ids     []int32 // [T]
	First   []int32 // [S+1]
	Rows    []int32 // [L] which token row each sampled row is
	Sampled []int32 // [L] what was sampled for it; −1: nothing
}

// none says of a token row that it is not sampled.
const none = -1

// index is for each token row the first of Rows that names it.
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

// Drafted sets out [T] to each token row's successor: what was sampled for it, else
// the next row of its sequence; 0 where there is neither.
func Drafted(d DraftRows, out []int32) {
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

// Verify sets kept [S] to each sequence's last row that is kept, −1 where it has no
// rows, and accepted [S] to how many sampled rows are.
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

// Largest is the first of the largest numbers of x; 0 where all are NaN.
func Largest(x []float32) int32 {
	best := -1
	for i, v := range x {
		if v == v && (best < 0 || v > x[best]) {
			best = i
		}
	}
	return int32(max(0, best))
}
