"""The parts of `bothends.torch.DataLoader`.

Reading order: `prepared` decides what bothends makes of a data set and its transforms, `orders`
which samples each batch contains, and `epochs` runs it. `rows` is what a `collate_fn` gets,
`states` guards what is saved, `rebuilt` recognises loaders that frameworks re-create, and `words`
holds the texts shown to users.
"""
