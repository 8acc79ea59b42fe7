"""The parts of `bothends.torch.DataLoader`.

Reading order: `prepared` decides what bothends makes of a data set and its transforms; `orders`
which samples are in which batch; `epochs` runs it; `rows` is what a `collate_fn` gets; `rebuilt`
keeps loaders ours that frameworks make again; `words` is what people are told.
"""
