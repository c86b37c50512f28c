"""From checkpoints to bundles: reading, checking, converting and training the parts that the runtime plays."""
