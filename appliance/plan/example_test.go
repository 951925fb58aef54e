package plan_test

import (
	"fmt"
	"log"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/schema"
)

// exampleInputs reads a profile and takes the facts of its model and of a GPU from the
// catalogues: neither weights nor the device are needed to plan.
func exampleInputs() (plan.Inputs, error) {
	p, err := schema.Parse("profile.cue", []byte(`
import "vapp.dev/schema"

schema.#Profile & {
	name: "example"
	model: source: "meta-llama/Llama-3.2-1B"
	maxModelLen: "64K"
	memory: utilization: 0.8
	scheduler: maxNumSeqs: 64
}
`))
	if err != nil {
		return plan.Inputs{}, err
	}
	device, err := devices.Find("l4")
	if err != nil {
		return plan.Inputs{}, err
	}
	model, err := engine.Inspect(plan.Source(p, ""))
	return plan.Inputs{Profile: p, Model: model, Opener: cuda.Opener{}, Facts: device.Facts("cuda")}, err
}

// A plan needs a profile and the facts of a model and of a machine.
func Example() {
	in, err := exampleInputs()
	if err != nil {
		log.Fatal(err)
	}
	defer in.Model.Close()
	p, err := plan.Make(in)
	if err != nil {
		log.Fatalf("%+v", err) // with the changes that would fit
	}
	fmt.Println("weights: ", plan.Size(p.Ledger.Bytes("weights")))
	fmt.Println("KV cache:", plan.Size(p.Ledger.Bytes("kv")))
	for _, f := range p.Capacity.Lengths {
		if f.Tokens == 32<<10 {
			fmt.Printf("%d sequences of %s tokens fit\n", f.Sequences, plan.Group(int64(f.Tokens)))
		}
	}
	// Output:
	// weights:  2.30 GiB
	// KV cache: 13.99 GiB
	// 13 sequences of 32,768 tokens fit
}

// WhyNot plans for a number of sequences of a length, here without images. If they do not fit, its answer lists the
// changes of the profile that would fit, each of which was planned.
func ExampleWhyNot() {
	in, err := exampleInputs()
	if err != nil {
		log.Fatal(err)
	}
	defer in.Model.Close()
	answer, err := plan.WhyNot(in, plan.Goal{Seqs: 16, Tokens: 32 << 10})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Fits, answer.Have)
	fmt.Println(answer.Changes[0])
	// Output:
	// false 13
	// memory.utilization: 0.9 (now 0.8)
}
