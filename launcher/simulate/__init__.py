"""Planning on Dynamo's offline simulator: what each split of a target's GPUs would do, in simulated time."""
